import {
  DataFrame,
  DataFrameType,
  Field,
  FieldColorModeId,
  FieldType,
  PanelProps,
  formattedValueToString,
  getValueFormat,
} from '@grafana/data';
import { AxisPlacement } from '@grafana/schema';
import { useTheme2 } from '@grafana/ui';
import * as chromatic from 'd3-scale-chromatic';
import { NoData } from './NoData';
import { RowPlot, box } from './plot';
import { plugin } from './plugin';

interface Options {
  color: {
    mode: 'scheme' | 'opacity';
    scheme: string;
    fill: string;
    scale: 'linear' | 'exponential';
    exponent: number;
    steps: number;
    reverse: boolean;
    min?: number;
    max?: number;
  };
  yAxis: { unit?: string; decimals?: number; axisLabel?: string; axisPlacement?: AxisPlacement };
  cellValues: { unit?: string };
  cellGap: number;
  filterValues: { le?: number };
  legend: { show: boolean };
}

const LEAST_TICK_PX = 16;
/** On a dark background Grafana turns every colour scheme round but these. */
const NOT_TURNED = /^(Turbo|Cividis|Viridis|Magma|Inferno|Plasma|Warm|Cool)$/;

function Panel(props: PanelProps<Options>) {
  const { data, height, options, fieldConfig } = props;
  const theme = useTheme2();
  const frame = data.series.find(({ meta }) => meta?.type === DataFrameType.HeatmapRows);
  if (!frame) {
    const other = data.series.length > 0 && 'Data is not of the heatmap format';
    return other ? <div>{other}</div> : <NoData fieldConfig={fieldConfig} />;
  }
  const [times, buckets] = [frame.fields[0], frame.fields.slice(1)];
  const least = options.filterValues.le ?? 0;
  const counts = shownCounts(frame, least);
  if (counts.length === 0) {
    return <NoData fieldConfig={fieldConfig} />;
  }
  const fill = theme.visualization.getColorByName(options.color.fill);
  const scale = colours({ ...options.color, fill }, counts);
  const interval = times.config.interval ?? 0;
  const ticks = everyNth(buckets, (height - 60) / LEAST_TICK_PX).map(([at, { name }]) => ({
    at: at + 1,
    text: bound(name, options.yAxis),
  }));
  const { axisLabel, axisPlacement } = options.yAxis;
  return (
    <RowPlot
      panel={props}
      rows={{ count: buckets.length, ticks, axisLabel, axisPlacement }}
      legend={options.legend.show ? <Legend scale={scale} unit={options.cellValues.unit} /> : null}
      draw={(u) => {
        buckets.forEach((bucket, row) =>
          times.values.forEach((time, i) => {
            const count = bucket.values[i];
            if (count !== null && count > least) {
              // The value of a point is of the step that ends there.
              const {
                left,
                top,
                width,
                height: tall,
              } = box(u, time - interval, time, row, row + 1);
              const gap = options.cellGap;
              u.ctx.fillStyle = scale.colour(count);
              u.ctx.fillRect(left, top, Math.max(1, width - gap), Math.max(1, tall - gap));
            }
          })
        );
      }}
    />
  );
}

interface Scale {
  min: number;
  max: number;
  colour: (count: number) => string;
}

function colours(color: Options['color'], counts: number[]): Scale {
  const min = color.min ?? counts.reduce((a, b) => Math.min(a, b));
  const max = color.max ?? counts.reduce((a, b) => Math.max(a, b));
  const named = `interpolate${color.scheme}` as keyof typeof chromatic;
  const scheme = chromatic[named] as ((share: number) => string) | undefined;
  if (color.mode === 'scheme' && typeof scheme !== 'function') {
    throw new Error(`there is no colour scheme ${color.scheme}`);
  }
  const inverted = color.reverse === NOT_TURNED.test(color.scheme);
  const exponent = color.scale === 'exponential' ? color.exponent : 1;
  return {
    min,
    max,
    colour: (count) => {
      const share = max > min ? (Math.min(Math.max(count, min), max) - min) / (max - min) : 1;
      const stepped = Math.round(share * (color.steps - 1)) / (color.steps - 1);
      if (color.mode === 'opacity' || !scheme) {
        const opacity = Math.round(stepped ** exponent * 100);
        return `color-mix(in srgb, ${color.fill} ${opacity}%, transparent)`;
      }
      return scheme(inverted ? 1 - stepped : stepped);
    },
  };
}

function Legend({ scale, unit }: { scale: Scale; unit?: string }) {
  const { typography, colors } = useTheme2();
  const { min, max, colour } = scale;
  const stops = Array.from({ length: 20 }, (_, i) => colour(min + ((max - min) * i) / 19));
  const format = (count: number) => formattedValueToString(getValueFormat(unit ?? 'short')(count));
  const text = { fontSize: typography.bodySmall.fontSize, color: colors.text.secondary };
  return (
    <div style={{ width: 300, padding: '4px 0 0 8px' }}>
      <div style={{ height: 6, background: `linear-gradient(90deg, ${stops.join(', ')})` }} />
      <div style={{ ...text, display: 'flex', justifyContent: 'space-between' }}>
        <span>{format(min)}</span>
        <span>{format(max)}</span>
      </div>
    </div>
  );
}

function shownCounts(frame: DataFrame, least: number): number[] {
  const counts = frame.fields.filter(({ type }) => type === FieldType.number);
  return counts.flatMap(({ values }) => values).filter((count) => count !== null && count > least);
}

/** As many as have room, with their rows, from the top one downwards. */
function everyNth(buckets: Field[], room: number): Array<[number, Field]> {
  const nth = Math.max(1, Math.ceil(buckets.length / Math.max(1, room)));
  const all = buckets.map((bucket, row): [number, Field] => [row, bucket]);
  return all.filter(([row]) => (buckets.length - 1 - row) % nth === 0);
}

function bound(name: string, { unit, decimals }: Options['yAxis']): string {
  const value = Number(name);
  return Number.isFinite(value)
    ? formattedValueToString(getValueFormat(unit ?? 'short')(value, decimals))
    : name;
}

export const heatmap = plugin<Options>({
  component: Panel,
  annotations: true,
  colour: FieldColorModeId.Thresholds,
  fields: { hideFrom: undefined, scaleDistribution: undefined },
  options: {
    color: {
      ...{ mode: 'scheme', scheme: 'Oranges', fill: 'dark-orange', scale: 'exponential' },
      ...{ exponent: 0.5, steps: 64, reverse: false },
    },
    yAxis: {},
    cellValues: {},
    cellGap: 1,
    filterValues: { le: 1e-9 },
    legend: { show: true },
  },
});
