import {
  DataFrame,
  Field,
  FieldColorModeId,
  FieldType,
  PanelProps,
  formattedValueToString,
  getFieldDisplayName,
} from '@grafana/data';
import { LegendDisplayMode, VisibilityMode, VizLegendOptions } from '@grafana/schema';
import { VizLegend, getTextColorForBackground } from '@grafana/ui';
import { NoData } from './NoData';
import { RowPlot, box } from './plot';
import type uPlot from 'uplot';
import { plugin } from './plugin';

interface Options {
  showValue: VisibilityMode;
  rowHeight: number;
  mergeValues: boolean;
  alignValue: 'left' | 'center' | 'right';
  legend: VizLegendOptions;
}

interface State {
  from: number;
  to: number;
  text: string;
  colour: string;
}

interface Row {
  name: string;
  opacity: number;
  states: State[];
}

const PADDING_PX = 6;

function Panel(props: PanelProps<Options>) {
  const { data, options, fieldConfig, timeRange } = props;
  const rows = data.series.flatMap((frame) =>
    values(frame).map(
      (field): Row => ({
        name: getFieldDisplayName(field, frame, data.series),
        opacity: (field.config.custom?.fillOpacity ?? 70) / 100,
        states: states(frame, field, options.mergeValues, timeRange.to.valueOf()),
      })
    )
  );
  if (rows.length === 0) {
    return <NoData fieldConfig={fieldConfig} />;
  }
  return (
    <RowPlot
      panel={props}
      rows={{
        count: rows.length,
        fromTop: true,
        ticks: rows.map(({ name }, i) => ({ at: i + 0.5, text: name })),
      }}
      placement={options.legend.placement}
      legend={options.legend.showLegend ? <Legend rows={rows} options={options.legend} /> : null}
      draw={(u, theme) => {
        u.ctx.textAlign = 'left';
        u.ctx.textBaseline = 'middle';
        u.ctx.font = `12px ${theme.typography.fontFamily}`;
        rows.forEach((row, i) => row.states.forEach((state) => draw(u, row, state, i, options)));
      }}
    />
  );
}

function draw(u: uPlot, row: Row, state: State, index: number, options: Options) {
  const half = options.rowHeight / 2;
  const { left, top, width, height } = box(
    ...([u, state.from, state.to, index + 0.5 - half, index + 0.5 + half] as const)
  );
  u.ctx.globalAlpha = row.opacity;
  u.ctx.fillStyle = state.colour;
  u.ctx.fillRect(left, top, width, height);
  u.ctx.globalAlpha = 1;
  const taken = u.ctx.measureText(state.text).width + 2 * PADDING_PX;
  const { showValue, alignValue } = options;
  if (showValue === VisibilityMode.Always || (showValue === VisibilityMode.Auto && taken < width)) {
    const share = { left: 0, center: 0.5, right: 1 }[alignValue];
    u.ctx.fillStyle = getTextColorForBackground(state.colour);
    u.ctx.fillText(state.text, left + PADDING_PX + share * (width - taken), top + height / 2);
  }
}

function values(frame: DataFrame): Field[] {
  return frame.fields.filter(({ type }) => type !== FieldType.time);
}

/** A value holds until the next point, or for one step where the next is missing. */
function states(frame: DataFrame, field: Field, merge: boolean, end: number): State[] {
  const times = frame.fields.find(({ type }) => type === FieldType.time);
  const interval = times?.config.interval ?? Infinity;
  const found: State[] = [];
  field.values.forEach((value, i) => {
    const from: number = times?.values[i];
    const next: number = times?.values[i + 1] ?? end;
    const to = next - from > interval ? from + interval : next;
    const shown = field.display!(value);
    const text = formattedValueToString(shown);
    const last = found.at(-1);
    if (merge && last?.to === from && last.text === text) {
      last.to = to;
    } else if (value !== null) {
      found.push({ from, to, text, colour: shown.color ?? '#808080' });
    }
  });
  return found;
}

/** The values that occur, each in its colour. */
function Legend({ rows, options }: { rows: Row[]; options: VizLegendOptions }) {
  const all = rows.flatMap((row) => row.states.map(({ text, colour }) => [text, colour] as const));
  const items = [...new Map(all)].map(([label, color]) => ({ label, color, yAxis: 1 }));
  return (
    <VizLegend items={items} placement={options.placement} displayMode={options.displayMode} />
  );
}

export const statetimeline = plugin<Options>({
  component: Panel,
  annotations: true,
  colour: FieldColorModeId.Thresholds,
  fields: {
    lineWidth: 0,
    fillOpacity: 70,
    spanNulls: false,
    insertNulls: false,
    hideFrom: undefined,
  },
  options: {
    ...{ showValue: VisibilityMode.Auto, rowHeight: 0.9, mergeValues: true, alignValue: 'left' },
    legend: {
      ...{ showLegend: true, displayMode: LegendDisplayMode.List, placement: 'bottom', calcs: [] },
    },
  },
});
