import { ControlsLabel, SceneDataLayerProvider } from '@grafana/scenes';

/** A switch for each kind of events, as a dashboard has beside its variables. */
export function Switches({ layers }: { layers: SceneDataLayerProvider[] }) {
  return layers
    .filter(({ state }) => !state.isHidden)
    .map((layer) => (
      <div key={layer.state.key} style={{ display: 'flex' }}>
        <ControlsLabel htmlFor={`data-layer-${layer.state.key}`} label={layer.state.name} />
        <layer.Component model={layer} />
      </div>
    ));
}
