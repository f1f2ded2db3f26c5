import { FieldConfigSource } from '@grafana/data';
import { useTheme2 } from '@grafana/ui';

/** What Grafana's panels say when no query has brought a value. */
export function NoData({ fieldConfig }: { fieldConfig: FieldConfigSource }) {
  const { colors, typography } = useTheme2();
  const style = {
    ...{ display: 'flex', alignItems: 'center', justifyContent: 'center', height: '100%' },
    ...{ color: colors.text.secondary, fontSize: typography.size.lg },
  };
  return <div style={style}>{fieldConfig.defaults.noValue ?? 'No data'}</div>;
}
