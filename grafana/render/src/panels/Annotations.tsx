import { DataFrame, DataFrameView } from '@grafana/data';
import { DEFAULT_ANNOTATION_COLOR, UPlotConfigBuilder, useTheme2 } from '@grafana/ui';
import { useLayoutEffect, useRef } from 'react';
import type uPlot from 'uplot';

interface Event {
  time: number;
  timeEnd?: number;
  isRegion?: boolean;
  color?: string;
}

const MARK_PX = 5;

/** A dashed line per event, with a triangle under the plot; a region has two lines and a bar. */
export function Annotations({
  config,
  frames,
}: {
  config: UPlotConfigBuilder;
  frames: DataFrame[];
}) {
  const { visualization } = useTheme2();
  const shown = useRef(frames);
  const plot = useRef<uPlot>(undefined);
  shown.current = frames;

  useLayoutEffect(() => {
    config.addHook('draw', (u) => {
      plot.current = u;
      for (const frame of shown.current) {
        new DataFrameView<Event>(frame).forEach((event) => {
          const colour = event.color ?? DEFAULT_ANNOTATION_COLOR;
          draw(u, event, visualization.getColorByName(colour));
        });
      }
    });
  }, [config, visualization]);
  useLayoutEffect(() => plot.current?.redraw(), [frames]);
  return null;
}

function draw(u: uPlot, { time, timeEnd, isRegion }: Event, colour: string) {
  const { ctx, bbox } = u;
  const [left, right] = [bbox.left, bbox.left + bbox.width];
  const bottom = bbox.top + bbox.height;
  const at = (ms: number) => Math.min(Math.max(u.valToPos(ms, 'x', true), left), right);
  const isShown = (ms: number) => ms >= (u.scales.x.min ?? 0) && ms <= (u.scales.x.max ?? 0);
  const edges = isRegion && timeEnd !== undefined ? [time, timeEnd] : [time];
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = 2;
  ctx.setLineDash([5, 5]);
  for (const edge of edges.filter(isShown)) {
    ctx.beginPath();
    ctx.moveTo(at(edge), bbox.top);
    ctx.lineTo(at(edge), bottom);
    ctx.stroke();
  }
  if (edges.length === 2) {
    ctx.fillRect(at(edges[0]), bottom, at(edges[1]) - at(edges[0]), MARK_PX);
    ctx.globalAlpha = 0.1;
    ctx.fillRect(at(edges[0]), bbox.top, at(edges[1]) - at(edges[0]), bbox.height);
  } else if (isShown(time)) {
    ctx.beginPath();
    ctx.moveTo(at(time), bottom);
    ctx.lineTo(at(time) - MARK_PX, bottom + MARK_PX);
    ctx.lineTo(at(time) + MARK_PX, bottom + MARK_PX);
    ctx.fill();
  }
  ctx.restore();
}
