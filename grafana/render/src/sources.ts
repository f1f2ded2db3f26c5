import { getDataSourceInstanceList } from '@grafana/runtime/unstable';

/**
 * Stands in for `@grafana/plugin-compat/datasources`, which asks a package for names that it may
 * not have; a bundler refuses that.
 */
export { getDataSourceInstance, getDataSourceInstanceList } from '@grafana/runtime/unstable';

type Listed = Awaited<ReturnType<typeof getDataSourceInstanceList>>[number];

export async function getDefaultDataSourceInstanceListItem(items: Listed[]) {
  return items.find(({ isDefault }) => isDefault);
}
