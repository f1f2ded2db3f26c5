import {
  Field,
  FieldColorModeId,
  FieldConfigProperty,
  FieldType,
  PanelPlugin,
  PanelProps,
  identityOverrideProcessor,
} from '@grafana/data';
import { ComponentType } from 'react';

interface Wanted<Options> {
  component: ComponentType<PanelProps<Options>>;
  /** Colour where neither the dashboard nor an override says one. */
  colour: FieldColorModeId;
  /** Options of fields, but not of times, that this kind of panel adds, with their defaults. */
  fields?: Record<string, unknown>;
  options?: Partial<Options>;
  /** It shows events beside its data. */
  annotations?: boolean;
}

const isNoTime = ({ type }: Field) => type !== FieldType.time;

/** A panel plugin with the defaults that a dashboard's JSON leaves out. */
export function plugin<Options extends object>(wanted: Wanted<Options>): PanelPlugin<Options> {
  const { component, colour, fields = {}, options = {} } = wanted;
  const made = new PanelPlugin<Options>(component);
  made.setDataSupport({ annotations: wanted.annotations ?? false, alertStates: false });
  made.useFieldConfig({
    standardOptions: { [FieldConfigProperty.Color]: { defaultValue: { mode: colour } } },
    useCustomConfig: (builder) => {
      for (const [path, defaultValue] of Object.entries(fields)) {
        builder.addCustomEditor({
          ...{ id: path, path, name: path, defaultValue, editor: () => null, override: () => null },
          ...{ process: identityOverrideProcessor, shouldApply: isNoTime },
        });
      }
    },
  });
  made.setPanelOptions((builder) => {
    for (const [path, defaultValue] of Object.entries(options)) {
      builder.addCustomEditor({ id: path, path, name: path, defaultValue, editor: () => null });
    }
  });
  return made;
}
