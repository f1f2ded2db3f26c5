import { sceneUtils } from '@grafana/scenes';
import { bargauge, stat } from './single';
import { heatmap } from './heatmap';
import { statetimeline } from './statetimeline';
import { table } from './table';
import { text } from './text';
import { timeseries } from './timeseries';

/** Every type of panel that can be drawn, by its name in a dashboard. */
export function registerPanels(): void {
  const all = { timeseries, stat, bargauge, heatmap, table, text, 'state-timeline': statetimeline };
  for (const [pluginId, plugin] of Object.entries(all)) {
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
  }
}
