import { Dashboard, Panel, RowPanel, VariableModel } from '@grafana/schema';
import {
  CustomVariable,
  DataSourceVariable,
  EmbeddedScene,
  IntervalVariable,
  ConstantVariable,
  QueryVariable,
  SceneControlsSpacer,
  SceneDataLayerSet,
  SceneDataTransformer,
  SceneGridItem,
  SceneGridLayout,
  SceneGridRow,
  SceneQueryRunner,
  SceneReactObject,
  SceneTimePicker,
  SceneTimeRange,
  SceneVariable,
  SceneVariableSet,
  TextBoxVariable,
  VariableValueSelectors,
  VizPanel,
  behaviors,
  dataLayers,
} from '@grafana/scenes';
import { DashboardCursorSync } from '@grafana/data';
import { Settings } from './settings';
import { Switches } from './Switches';

type AnyPanel = Panel | RowPanel;
type Transformations = SceneDataTransformer['state']['transformations'];

/** The scene of a dashboard: Grafana's own grid, panels' frames, variables and time range. */
export function scene(settings: Settings): EmbeddedScene {
  const { dashboard, start, end, variables } = settings;
  const layers = annotations(dashboard);
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({
      from: new Date(start * 1000).toISOString(),
      to: new Date(end * 1000).toISOString(),
      timeZone: 'utc',
    }),
    $variables: new SceneVariableSet({
      variables: (dashboard.templating?.list ?? []).map((model) => variable(model, variables)),
    }),
    $data: new SceneDataLayerSet({ layers }),
    $behaviors: [new behaviors.CursorSync({ key: 'cursor', sync: DashboardCursorSync.Off })],
    controls: [
      new VariableValueSelectors({}),
      new SceneReactObject({ component: Switches, props: { layers } }),
      new SceneControlsSpacer(),
      new SceneTimePicker({}),
    ],
    body: new SceneGridLayout({ children: items((dashboard.panels ?? []) as AnyPanel[]) }),
  });
}

/** Rows take the panels that follow them; a closed row brings its own and stays closed. */
function items(panels: AnyPanel[]): Array<SceneGridItem | SceneGridRow> {
  const found: Array<SceneGridItem | SceneGridRow> = [];
  let row: SceneGridRow | undefined;
  for (const panel of panels) {
    if (isRow(panel)) {
      row = new SceneGridRow({
        key: `row-${panel.id}`,
        title: panel.title ?? '',
        y: panel.gridPos?.y,
        isCollapsed: panel.collapsed,
        children: (panel.panels ?? []).map((inner) => item(inner as Panel)),
      });
      found.push(row);
      row = panel.collapsed ? undefined : row;
    } else if (row) {
      row.setState({ children: [...row.state.children, item(panel)] });
    } else {
      found.push(item(panel));
    }
  }
  return found;
}

function isRow(panel: AnyPanel): panel is RowPanel {
  return panel.type === 'row';
}

function item(panel: Panel): SceneGridItem {
  const { x, y, w, h } = panel.gridPos ?? { x: 0, y: 0, w: 12, h: 8 };
  if (panel.repeat) {
    throw new Error(`panel ${panel.id} repeats, which is not drawn here`);
  }
  const queries = panel.targets ?? [];
  const runner = new SceneQueryRunner({
    datasource: panel.datasource,
    queries: queries as SceneQueryRunner['state']['queries'],
    maxDataPoints: panel.maxDataPoints,
    maxDataPointsFromWidth: true,
    minInterval: panel.interval,
    dataLayerFilter: { panelId: panel.id ?? 0 },
  });
  const transformations = (panel.transformations ?? []) as Transformations;
  return new SceneGridItem({
    ...{ key: `item-${panel.id}`, x, y, width: w, height: h },
    body: new VizPanel({
      key: `panel-${panel.id}`,
      pluginId: panel.type,
      title: panel.title ?? '',
      description: panel.description,
      options: panel.options,
      fieldConfig: panel.fieldConfig as VizPanel['state']['fieldConfig'],
      displayMode: panel.transparent ? 'transparent' : 'default',
      hoverHeader: !panel.title,
      $data:
        queries.length === 0
          ? undefined
          : new SceneDataTransformer({ $data: runner, transformations }),
    }),
  });
}

function annotations(dashboard: Dashboard) {
  const own = (dashboard.annotations?.list ?? []).filter(({ builtIn }) => !builtIn);
  return own.map(
    (query) =>
      new dataLayers.AnnotationsDataLayer({
        key: `annotation-${query.name}`,
        name: query.name,
        isEnabled: query.enable !== false,
        isHidden: query.hide,
        query: query as dataLayers.AnnotationsDataLayer['state']['query'],
      })
  );
}

function variable(model: VariableModel, given: Settings['variables']): SceneVariable {
  const { name, label, hide } = model;
  const shared = { name, label: label ?? undefined, hide, skipUrlSync: true };
  const value = given[name] ?? model.current?.value ?? '';
  const text = given[name] ?? model.current?.text ?? value;
  const many = {
    ...{ ...shared, value, text, allValue: model.allValue ?? undefined },
    ...{ isMulti: model.multi, includeAll: model.includeAll, defaultToAll: model.includeAll },
  };
  const query = model.query as string | undefined;
  switch (model.type) {
    case 'query':
      return new QueryVariable({
        ...{ ...many, datasource: model.datasource ?? null, query: model.query as string },
        ...{ regex: model.regex, sort: model.sort, refresh: model.refresh },
      });
    case 'datasource':
      return new DataSourceVariable({ ...many, pluginId: query, regex: model.regex });
    case 'custom':
      return new CustomVariable({ ...many, query });
    case 'interval':
      return new IntervalVariable({
        ...{ ...shared, value: String(value) },
        intervals: (query ?? '').split(',').map((interval) => interval.trim()),
      });
    case 'constant':
      return new ConstantVariable({ ...shared, value: given[name] ?? query ?? '' });
    case 'textbox':
      return new TextBoxVariable({ ...shared, value: String(given[name] ?? query ?? '') });
    default:
      throw new Error(`variable ${name} is of type ${model.type}, which is not drawn here`);
  }
}
