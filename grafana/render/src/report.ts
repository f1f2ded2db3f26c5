import { DataFrame, FieldType, LoadingState, PanelData } from '@grafana/data';
import {
  EmbeddedScene,
  MultiValueVariable,
  SceneDataLayerProvider,
  SceneDataLayerSet,
  VizPanel,
  sceneGraph,
} from '@grafana/scenes';
import { Settings } from './settings';

/** What one panel shows, read from its data and from its elements on the page. */
interface PanelReport {
  id: number;
  title: string;
  type: string;
  /** Frames that came, and the values in them: numbers, and texts of a table. */
  series: number;
  values: number;
  /** A canvas has a point in a colour; the lines and texts of axes are grey. */
  inked: boolean;
  legend: string[];
  /** All that can be read in the panel, without its title. */
  text: string;
  errors: string[];
}

export interface Report {
  panels: PanelReport[];
  /** Errors outside of panels, as of a variable. */
  errors: string[];
  /** Where the lowest panel ends, in pixels. */
  bottom: number;
}

export function report(scene: EmbeddedScene, settings: Settings): Report {
  const items = [...document.querySelectorAll('.react-grid-item')];
  return {
    panels: panels(scene).map(one),
    errors: [...variableErrors(scene, settings), ...layers(scene).flatMap(layerErrors)],
    bottom: Math.max(...items.map((item) => item.getBoundingClientRect().bottom)),
  };
}

/** Titles of panels, and names of events, whose queries have not been answered. */
export function waitedFor(scene: EmbeddedScene): string[] {
  const all = panels(scene);
  const waiting = all.filter(({ state }) => state.$data && !isAnswered(state.$data.state.data));
  const events = layers(scene).filter(({ state }) => state.isEnabled && !isAnswered(state.data));
  const names = [
    ...waiting.map(({ state }) => state.title),
    ...events.map(({ state }) => state.name),
  ];
  return all.length === 0 ? ['any panel'] : names;
}

function layers(scene: EmbeddedScene): SceneDataLayerProvider[] {
  return scene.state.$data instanceof SceneDataLayerSet ? scene.state.$data.state.layers : [];
}

function panels(scene: EmbeddedScene): VizPanel[] {
  const found = sceneGraph.findAllObjects(scene, (object) => object instanceof VizPanel);
  return (found as VizPanel[]).filter((panel) => panel.isActive);
}

function isAnswered(data?: PanelData): boolean {
  return data?.state === LoadingState.Done || data?.state === LoadingState.Error;
}

function one(panel: VizPanel): PanelReport {
  const data = panel.state.$data?.state.data;
  const frames = data?.series ?? [];
  const element = document.querySelector(`[data-viz-panel-key="${panel.state.key}"]`);
  const content = element?.querySelector<HTMLElement>('[data-testid="data-testid panel content"]');
  const raised = (data?.errors ?? []).map((error) => error.message ?? 'unknown');
  const failed = element?.querySelector('[data-testid="data-testid Alert error"]')?.textContent;
  const { _pluginLoadError: missing } = panel.state;
  return {
    id: panel.getLegacyPanelId(),
    title: panel.interpolate(panel.state.title, undefined, 'text'),
    type: panel.state.pluginId,
    series: frames.length,
    values: frames.map(countValues).reduce((sum, count) => sum + count, 0),
    inked: [...(element?.querySelectorAll('canvas') ?? [])].some(isInked),
    legend: content ? legend(content) : [],
    text: content?.innerText ?? '',
    errors: [...raised, missing, failed?.split('\n')[0]].filter((error) => error !== undefined),
  };
}

/** Names of series, from a legend that is a list or a table. */
function legend(content: HTMLElement): string[] {
  const prefix = 'data-testid VizLegend series ';
  const entries = content.querySelectorAll<HTMLElement>(
    `[data-testid^="${prefix}"], td button[title]`
  );
  return [...entries].map(
    ({ title, dataset }) => title || (dataset.testid ?? '').slice(prefix.length)
  );
}

function countValues(frame: DataFrame): number {
  const values = frame.fields
    .filter(({ type }) => type !== FieldType.time)
    .flatMap((f) => f.values);
  return values.filter((value) => typeof value === 'string' || Number.isFinite(value)).length;
}

function isInked(canvas: HTMLCanvasElement): boolean {
  const { width, height } = canvas;
  const pixels = canvas.getContext('2d')?.getImageData(0, 0, width, height).data ?? [];
  for (let i = 0; i < pixels.length; i += 4) {
    const [red, green, blue] = [pixels[i], pixels[i + 1], pixels[i + 2]];
    if (pixels[i + 3] > 100 && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) {
      return true;
    }
  }
  return false;
}

function layerErrors({ state }: SceneDataLayerProvider): string[] {
  return (state.data?.errors ?? []).map(({ message }) => `annotation ${state.name}: ${message}`);
}

function variableErrors(scene: EmbeddedScene, settings: Settings): string[] {
  const all = sceneGraph.getVariables(scene).state.variables;
  const unknown = Object.keys(settings.variables).filter(
    (name) => !all.some((variable) => variable.state.name === name)
  );
  return [
    ...unknown.map((name) => `the dashboard has no variable ${name}`),
    ...all.flatMap((variable) => {
      const { name, error } = variable.state;
      const asked = settings.variables[name];
      const got = variable.getValue();
      const other =
        asked !== undefined &&
        variable instanceof MultiValueVariable &&
        !variable.hasAllValue() &&
        String(asked) !== String(got);
      return [
        ...(error ? [`variable ${name}: ${error}`] : []),
        ...(other ? [`variable ${name} cannot be ${asked}; it is ${got}`] : []),
      ];
    }),
  ];
}
