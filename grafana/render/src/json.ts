import {
  AnnotationContainer,
  AnnotationQuery,
  Dashboard,
  FieldConfig,
  FieldConfigSource,
  Panel,
  RowPanel,
  VariableModel,
} from '@grafana/schema';
import * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import * as states from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

/** A type as JSON has it: the values of an enum instead of its names. */
type Plain<T> = T extends string
  ? `${T}`
  : T extends number
    ? `${T}` extends `${infer Value extends number}`
      ? Value
      : T
    : T extends object
      ? { [Key in keyof T]: Plain<T[Key]> }
      : T;

/** A plugin has defaults for what its options leave out. */
type Of<Type extends string, Options, Custom = Record<string, never>> = Omit<
  Plain<Panel>,
  Typed
> & {
  type: Type;
  options: Partial<Plain<Options>>;
  fieldConfig: Omit<Plain<FieldConfigSource>, 'defaults'> & {
    defaults: Omit<Plain<FieldConfig>, 'custom'> & {
      custom?: Partial<Plain<Custom>>;
    };
  };
};
type Typed = 'type' | 'options' | 'fieldConfig';

/** Grafana writes these two as well; its schema leaves them to a data source. */
type Variable = Plain<VariableModel> & { definition?: string };
type Event = Plain<AnnotationQuery> & {
  expr?: string;
  step?: string;
  titleFormat?: string;
  textFormat?: string;
  tagKeys?: string;
  useValueForTime?: boolean;
};

/**
 * A dashboard's JSON by Grafana's own schemas, with those of its kinds of panels.
 *
 * The tests assign the dashboards to it.
 */
export type DashboardJson = Omit<Plain<Dashboard>, 'panels' | 'templating' | 'annotations'> & {
  panels: Array<
    | Plain<RowPanel>
    | Of<'heatmap', heatmap.Options, heatmap.FieldConfig>
    | Of<'stat', stat.Options>
    | Of<'state-timeline', states.Options, states.FieldConfig>
    | Of<'table', table.Options, table.FieldConfig>
    | Of<'timeseries', timeseries.Options, timeseries.FieldConfig>
  >;
  templating: { list: Variable[] };
  annotations: Omit<Plain<AnnotationContainer>, 'list'> & { list: Event[] };
};
