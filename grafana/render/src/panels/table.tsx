import { FieldColorModeId, PanelProps, cacheFieldDisplayNames } from '@grafana/data';
import { TableCellDisplayMode, TableCellHeight, TableSortByFieldState } from '@grafana/schema';
import { TableNG } from '@grafana/ui/unstable';
import { NoData } from './NoData';
import { plugin } from './plugin';

interface Options {
  frameIndex: number;
  showHeader: boolean;
  sortBy: TableSortByFieldState[];
  cellHeight: TableCellHeight;
}

function Panel({ data, width, height, options, fieldConfig, timeRange }: PanelProps<Options>) {
  const frame = data.series[options.frameIndex] ?? data.series[0];
  if (!frame || frame.length === 0) {
    return <NoData fieldConfig={fieldConfig} />;
  }
  cacheFieldDisplayNames(data.series);
  return (
    <TableNG
      {...{ width, height, data: frame, timeRange, fieldConfig }}
      noHeader={!options.showHeader}
      sortBy={options.sortBy}
      cellHeight={options.cellHeight}
      structureRev={data.structureRev}
      // Rows beyond the panel's edge would only cost time.
      enableVirtualization
    />
  );
}

export const table = plugin<Options>({
  component: Panel,
  colour: FieldColorModeId.Thresholds,
  fields: {
    cellOptions: { type: TableCellDisplayMode.Auto },
    ...{ align: 'auto', inspect: false, filterable: false, width: undefined, minWidth: undefined },
    ...{ hidden: undefined, wrapText: undefined, hideFrom: undefined },
  },
  options: { frameIndex: 0, showHeader: true, sortBy: [], cellHeight: TableCellHeight.Sm },
});
