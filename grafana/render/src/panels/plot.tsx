import { GrafanaTheme2, PanelProps } from '@grafana/data';
import { AxisPlacement, LegendPlacement, ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { UPlotChart, UPlotConfigBuilder, VizLayout, useTheme2 } from '@grafana/ui';
import { ReactNode, useMemo } from 'react';
import type uPlot from 'uplot';
import { Annotations } from './Annotations';

interface Rows {
  /** Rows are counted upwards from 0, or downwards where `fromTop`. */
  count: number;
  fromTop?: boolean;
  /** Where ticks stand, in rows, and what they say. */
  ticks: Array<{ at: number; text: string }>;
  axisLabel?: string;
  axisPlacement?: AxisPlacement;
}

interface Props {
  panel: PanelProps;
  rows: Rows;
  /** Fills the rows with `u.ctx`; runs after Grafana's axes are drawn. */
  draw: (u: uPlot, theme: GrafanaTheme2) => void;
  legend: ReactNode;
  placement?: LegendPlacement;
}

/** Grafana's chart with its time axis and a vertical axis of rows; what fills them is the panel's. */
export function RowPlot({ panel, rows, draw, legend, placement = 'bottom' }: Props) {
  const { data, width, height, timeRange, timeZone } = panel;
  const theme = useTheme2();
  const config = useMemo(() => {
    const builder = new UPlotConfigBuilder(timeZone);
    builder.addScale({
      ...{ scaleKey: 'x', isTime: true, orientation: ScaleOrientation.Horizontal },
      direction: ScaleDirection.Right,
      range: () => [timeRange.from.valueOf(), timeRange.to.valueOf()],
    });
    builder.addScale({
      ...{ scaleKey: 'y', orientation: ScaleOrientation.Vertical, range: () => [0, rows.count] },
      direction: rows.fromTop ? ScaleDirection.Down : ScaleDirection.Up,
    });
    builder.addAxis({
      ...{ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone, theme },
      grid: { show: false },
    });
    builder.addAxis({
      ...{ scaleKey: 'y', placement: rows.axisPlacement ?? AxisPlacement.Left, theme },
      ...{ grid: { show: false }, ticks: { show: false }, label: rows.axisLabel },
      splits: rows.ticks.map(({ at }) => at),
      values: rows.ticks.map(({ text }) => text),
    });
    builder.addSeries({ scaleKey: 'y', theme, pathBuilder: () => null, show: true });
    builder.addHook('draw', (u) => {
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      u.ctx.clip();
      draw(u, theme);
      u.ctx.restore();
    });
    return builder;
    // A picture is drawn once: what changes is the answer and the size.
  }, [data, height, theme]);
  const ends = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  return (
    <VizLayout
      {...{ width, height }}
      legend={
        legend ? (
          <VizLayout.Legend placement={placement} maxHeight="35%" maxWidth="60%">
            {legend}
          </VizLayout.Legend>
        ) : null
      }
    >
      {(plotWidth: number, plotHeight: number) => (
        <UPlotChart
          {...{ config, width: plotWidth, height: plotHeight }}
          data={[ends, ends.map(() => null)]}
        >
          <Annotations config={config} frames={data.annotations ?? []} />
        </UPlotChart>
      )}
    </VizLayout>
  );
}

/** A box in whole pixels of the canvas. */
export function box(u: uPlot, from: number, to: number, bottom: number, top: number) {
  const x = (value: number) => Math.round(u.valToPos(value, 'x', true));
  const y = (value: number) => Math.round(u.valToPos(value, 'y', true));
  const [left, right, y0, y1] = [x(from), x(to), y(bottom), y(top)];
  return { left, top: Math.min(y0, y1), width: right - left, height: Math.abs(y1 - y0) };
}
