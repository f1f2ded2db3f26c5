import { DataFrame, FieldColorModeId, FieldType, PanelProps } from '@grafana/data';
import {
  AxisColorMode,
  AxisPlacement,
  BarAlignment,
  GraphDrawStyle,
  GraphFieldConfig,
  GraphGradientMode,
  GraphThresholdsStyleMode,
  LegendDisplayMode,
  LineInterpolation,
  ScaleDistribution,
  StackingMode,
  VisibilityMode,
  VizLegendOptions,
} from '@grafana/schema';
import { TimeSeries } from '@grafana/ui';
import { useMemo } from 'react';
import { Annotations } from './Annotations';
import { NoData } from './NoData';
import { plugin } from './plugin';

interface Options {
  legend: VizLegendOptions;
}

function Panel({
  data,
  width,
  height,
  timeRange,
  timeZone,
  options,
  fieldConfig,
}: PanelProps<Options>) {
  const frames = useMemo(() => data.series.filter(isSeries).map(finite), [data.series]);
  if (frames.length === 0) {
    return <NoData fieldConfig={fieldConfig} />;
  }
  return (
    <TimeSeries
      {...{ frames, width, height, timeRange, timeZone, options }}
      structureRev={data.structureRev}
      legend={options.legend}
    >
      {(config) => <Annotations config={config} frames={data.annotations ?? []} />}
    </TimeSeries>
  );
}

function isSeries(frame: DataFrame): boolean {
  const types = frame.fields.map(({ type }) => type);
  return frame.length > 0 && types.includes(FieldType.time) && types.includes(FieldType.number);
}

/** A value that is no number leaves a gap. */
function finite(frame: DataFrame): DataFrame {
  const fields = frame.fields.map((field) => {
    const values = field.values.map((value) => (Number.isFinite(value) ? value : null));
    return field.type === FieldType.number ? { ...field, values } : field;
  });
  return { ...frame, fields };
}

const fields: Record<keyof GraphFieldConfig, unknown> = {
  drawStyle: GraphDrawStyle.Line,
  lineInterpolation: LineInterpolation.Linear,
  lineWidth: 1,
  lineStyle: undefined,
  lineColor: undefined,
  fillOpacity: 0,
  fillColor: undefined,
  fillBelowTo: undefined,
  gradientMode: GraphGradientMode.None,
  barAlignment: BarAlignment.Center,
  barWidthFactor: 0.6,
  barMaxWidth: undefined,
  showPoints: VisibilityMode.Auto,
  pointSize: 5,
  spanNulls: false,
  insertNulls: false,
  stacking: { mode: StackingMode.None, group: 'A' },
  axisPlacement: AxisPlacement.Auto,
  axisLabel: '',
  axisColorMode: AxisColorMode.Text,
  axisBorderShow: false,
  axisCenteredZero: false,
  axisGridShow: undefined,
  axisWidth: undefined,
  axisSoftMin: undefined,
  axisSoftMax: undefined,
  scaleDistribution: { type: ScaleDistribution.Linear },
  hideFrom: { tooltip: false, viz: false, legend: false },
  thresholdsStyle: { mode: GraphThresholdsStyleMode.Off },
  ...{ transform: undefined, pointColor: undefined, pointSymbol: undefined, showValues: false },
};

const legend: VizLegendOptions = {
  ...{ showLegend: true, displayMode: LegendDisplayMode.List, placement: 'bottom', calcs: [] },
};

export const timeseries = plugin<Options>({
  ...{ component: Panel, colour: FieldColorModeId.PaletteClassic, annotations: true },
  ...{ fields, options: { legend } },
});
