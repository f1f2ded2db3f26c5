import {
  CoreApp,
  DataQueryRequest,
  DataSourceApi,
  DataSourceRef,
  EventBusSrv,
  FieldColorModeId,
  FieldConfigPropertyItem,
  LoadingState,
  PanelData,
  ScopedVars,
  ThresholdsMode,
  booleanOverrideProcessor,
  createTheme,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  toDataFrame,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import {
  DataSourceSrv,
  TemplateSrv,
  config,
  setAppEvents,
  setDataSourceSrv,
  setPluginImportUtils,
  setRunRequest,
  setTemplateSrv,
} from '@grafana/runtime';
import { registerRuntimeDataSourceInstance } from '@grafana/runtime/unstable';
import { sceneGraph } from '@grafana/scenes';
import { Observable, catchError, from, map, of } from 'rxjs';
import { Prometheus } from './prometheus';

export const theme = createTheme({ colors: { mode: 'dark' } });

/** What Grafana's own front end sets up at its start and the packages then ask for. */
export async function setUp(source: Prometheus): Promise<void> {
  await initPluginTranslations('grafana-scenes', []);
  config.theme2 = theme;
  setAppEvents(new EventBusSrv());
  setTemplateSrv(templates as unknown as TemplateSrv);
  setRunRequest(run);
  setDataSourceSrv(sources(source));
  registerRuntimeDataSourceInstance({ dataSource: source });
  setPluginImportUtils({
    importPanelPlugin: async (id) => {
      throw new Error(`panels of type ${id} are not drawn here`);
    },
    getPanelPluginFromCache: () => undefined,
  });
  standardFieldConfigEditorRegistry.setInit(() => fieldOptions);
  standardTransformersRegistry.setInit(() =>
    // Some stand there twice, under an older name.
    [...new Set(Object.values(standardTransformers))].map((transformation) => ({
      id: transformation.id,
      name: transformation.name,
      editor: () => null,
      transformation: async () => transformation,
      imageDark: '',
      imageLight: '',
    }))
  );
}

const templates = {
  replace: (text = '', vars?: ScopedVars, format?: string) => {
    const scene = vars?.__sceneObject?.value.valueOf();
    return scene ? sceneGraph.interpolate(scene, text, vars, format) : text;
  },
  getVariables: () => [],
  containsTemplate: () => false,
  updateTimeRange: () => undefined,
};

/** There is one source; a dashboard may name it, or leave it to the default. */
function sources(source: Prometheus): DataSourceSrv {
  const { uid, name, instanceSettings } = source;
  const isOurs = (ref?: string | DataSourceRef | null, vars?: ScopedVars) => {
    const asked = typeof ref === 'string' ? ref : ref?.uid;
    return !asked || [uid, name, 'default'].includes(templates.replace(asked, vars));
  };
  return {
    get: async (ref, vars) => {
      if (!isOurs(ref, vars)) {
        throw new Error(`there is no data source ${typeof ref === 'string' ? ref : ref?.uid}`);
      }
      return source;
    },
    getList: () => [instanceSettings],
    getInstanceSettings: (ref, vars) => (isOurs(ref, vars) ? instanceSettings : undefined),
    reload: async () => undefined,
    registerRuntimeDataSource: () => undefined,
  };
}

/** One answer per request; what a query raises is an error of the panel. */
function run(source: DataSourceApi, request: DataQueryRequest): Observable<PanelData> {
  const asked = { ...request, app: CoreApp.Dashboard };
  const nothing: PanelData = {
    state: LoadingState.Error,
    series: [],
    timeRange: request.range,
    request: asked,
  };
  return from(source.query(asked)).pipe(
    map((answer) => ({
      ...nothing,
      state: answer.errors?.length ? LoadingState.Error : LoadingState.Done,
      series: answer.data.map(toDataFrame),
      errors: answer.errors,
    })),
    catchError((error: Error) => of({ ...nothing, errors: [{ message: error.message }] }))
  );
}

/** Options that every field has: where they stand, and how an override's value is read. */
const fieldOptions = [
  option('displayName', displayNameOverrideProcessor),
  option('unit', unitOverrideProcessor),
  option('min', numberOverrideProcessor),
  option('max', numberOverrideProcessor),
  option('fieldMinMax', booleanOverrideProcessor),
  option('decimals', numberOverrideProcessor),
  option('noValue', stringOverrideProcessor),
  option('color', identityOverrideProcessor, { mode: FieldColorModeId.Thresholds }),
  option('mappings', valueMappingsOverrideProcessor, []),
  option('links', dataLinksOverrideProcessor),
  option('filterable', booleanOverrideProcessor),
  option('thresholds', thresholdsOverrideProcessor, {
    mode: ThresholdsMode.Absolute,
    steps: [
      { value: -Infinity, color: 'green' },
      { value: 80, color: 'red' },
    ],
  }),
];

function option(
  path: string,
  process: FieldConfigPropertyItem['process'],
  defaultValue?: unknown
): FieldConfigPropertyItem {
  const editor = () => null;
  return {
    ...{ id: path, path, name: path, process, defaultValue, editor, override: editor },
    shouldApply: () => true,
  };
}
