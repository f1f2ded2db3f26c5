import {
  DisplayValueAlignmentFactors,
  FieldColorModeId,
  FieldDisplay,
  PanelProps,
  ReduceDataOptions,
  VizOrientation,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
} from '@grafana/data';
import {
  BarGaugeDisplayMode,
  BarGaugeNamePlacement,
  BarGaugeValueMode,
  PercentChangeColorMode,
  VizTextDisplayOptions,
} from '@grafana/schema';
import {
  BarGauge,
  BigValue,
  BigValueColorMode,
  BigValueGraphMode,
  BigValueJustifyMode,
  BigValueTextMode,
  VizRepeater,
  VizRepeaterRenderValueProps,
  useTheme2,
} from '@grafana/ui';
import { plugin } from './plugin';

interface Shared {
  reduceOptions: ReduceDataOptions;
  orientation: VizOrientation;
  text?: VizTextDisplayOptions;
}

interface StatOptions extends Shared {
  graphMode: BigValueGraphMode;
  colorMode: BigValueColorMode;
  justifyMode: BigValueJustifyMode;
  textMode: BigValueTextMode;
  wideLayout: boolean;
  showPercentChange: boolean;
  percentChangeColorMode: PercentChangeColorMode;
}

interface BarOptions extends Shared {
  displayMode: BarGaugeDisplayMode;
  valueMode: BarGaugeValueMode;
  namePlacement: BarGaugeNamePlacement;
  showUnfilled: boolean;
  minVizWidth: number;
  minVizHeight: number;
  maxVizHeight: number;
}

type Drawn = VizRepeaterRenderValueProps<FieldDisplay, DisplayValueAlignmentFactors>;

function Stat(props: PanelProps<StatOptions>) {
  const { options } = props;
  const theme = useTheme2();
  const alone = options.graphMode !== BigValueGraphMode.None;
  const draw = ({ value, width, height, count, alignmentFactors }: Drawn) => (
    <BigValue
      {...{ width, height, count, alignmentFactors, theme }}
      value={value.display}
      sparkline={alone ? value.sparkline : undefined}
      text={options.text}
      textMode={options.textMode}
      colorMode={options.colorMode}
      graphMode={options.graphMode}
      justifyMode={options.justifyMode}
      disableWideLayout={!options.wideLayout}
      percentChangeColorMode={options.percentChangeColorMode}
    />
  );
  return <Repeated panel={props} draw={draw} sparkline={alone} autoGrid />;
}

function Bars(props: PanelProps<BarOptions>) {
  const { options } = props;
  const theme = useTheme2();
  const draw = ({ value, width, height, orientation, alignmentFactors }: Drawn) => (
    <BarGauge
      {...{ width, height, orientation, alignmentFactors, theme }}
      value={value.display}
      field={value.field}
      display={value.view?.getFieldDisplayProcessor(value.colIndex ?? 0)}
      text={options.text}
      displayMode={options.displayMode}
      valueDisplayMode={options.valueMode}
      namePlacement={options.namePlacement}
      showUnfilled={options.showUnfilled}
      itemSpacing={10}
      lcdCellWidth={options.displayMode === BarGaugeDisplayMode.Lcd ? 12 : 8}
    />
  );
  return <Repeated panel={props} draw={draw} sizes={options} />;
}

interface RepeatedProps {
  panel: Omit<PanelProps, 'options'> & { options: Shared };
  draw: (drawn: Drawn) => React.JSX.Element;
  sparkline?: boolean;
  autoGrid?: boolean;
  sizes?: Pick<BarOptions, 'minVizWidth' | 'minVizHeight' | 'maxVizHeight'>;
}

/** A value per series; Grafana's own reduction, text and colour of each. */
function Repeated({ panel, draw, sparkline, autoGrid, sizes }: RepeatedProps) {
  const { data, options, fieldConfig, replaceVariables, timeZone, width, height } = panel;
  const theme = useTheme2();
  const values = () =>
    getFieldDisplayValues({
      ...{ fieldConfig, replaceVariables, theme, timeZone, sparkline },
      reduceOptions: options.reduceOptions,
      data: data.series,
    });
  return (
    <VizRepeater
      {...{ width, height, autoGrid, source: data, getValues: values, renderValue: draw, ...sizes }}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderCounter={panel.renderCounter}
      orientation={options.orientation}
      itemSpacing={autoGrid ? 3 : 10}
    />
  );
}

const shared: Shared = {
  reduceOptions: { calcs: ['lastNotNull'], values: false, fields: '' },
  orientation: VizOrientation.Auto,
};

export const stat = plugin<StatOptions>({
  component: Stat,
  colour: FieldColorModeId.Thresholds,
  options: {
    ...shared,
    graphMode: BigValueGraphMode.Area,
    colorMode: BigValueColorMode.Value,
    justifyMode: BigValueJustifyMode.Auto,
    textMode: BigValueTextMode.Auto,
    wideLayout: true,
    percentChangeColorMode: PercentChangeColorMode.Standard,
  },
});

export const bargauge = plugin<BarOptions>({
  component: Bars,
  colour: FieldColorModeId.Thresholds,
  options: {
    ...shared,
    displayMode: BarGaugeDisplayMode.Gradient,
    valueMode: BarGaugeValueMode.Color,
    namePlacement: BarGaugeNamePlacement.Auto,
    showUnfilled: true,
    minVizWidth: 8,
    minVizHeight: 16,
    maxVizHeight: 300,
  },
});
