import {
  DataFrame,
  DataFrameType,
  FieldType,
  Labels,
  TIME_SERIES_TIME_FIELD_NAME,
  TIME_SERIES_VALUE_FIELD_NAME,
  createDataFrame,
} from '@grafana/data';

/** One series of an answer of Prometheus: pairs of a time in s and a value as text. */
export interface Series {
  metric: Labels;
  points: Array<[number, string]>;
}

/** A frame per series, as Grafana's Prometheus source makes them for `time_series`. */
export function seriesFrames(
  found: Series[],
  query: { refId: string; expr: string; legendFormat?: string },
  stepMs: number
): DataFrame[] {
  return found.map(({ metric, points }) => {
    const name = legend(metric, query);
    return createDataFrame({
      refId: query.refId,
      name,
      meta: { type: DataFrameType.TimeSeriesMulti, executedQueryString: query.expr },
      fields: [
        {
          name: TIME_SERIES_TIME_FIELD_NAME,
          type: FieldType.time,
          // Two points further apart than this have a gap between them.
          config: { interval: stepMs },
          values: points.map(([time]) => time * 1000),
        },
        {
          name: TIME_SERIES_VALUE_FIELD_NAME,
          type: FieldType.number,
          labels: metric,
          config: { displayNameFromDS: name },
          values: points.map(([, value]) => number(value)),
        },
      ],
    });
  });
}

/** One frame for all: a row per point, a column per label. */
export function tableFrame(found: Series[], refId: string, valueName: string): DataFrame[] {
  const rows = found.flatMap(({ metric, points }) => points.map((point) => ({ metric, point })));
  if (rows.length === 0) {
    return [];
  }
  const labels = [...new Set(found.flatMap(({ metric }) => Object.keys(metric)))].sort();
  const table = createDataFrame({
    refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: rows.map((row) => row.point[0] * 1000) },
      ...labels.map((label) => ({
        name: label,
        type: FieldType.string,
        config: { filterable: true },
        values: rows.map((row) => row.metric[label]),
      })),
      { name: valueName, type: FieldType.number, values: rows.map((row) => number(row.point[1])) },
    ],
  });
  return [table];
}

/**
 * One frame: a time column, then a column per bucket, low to high, each named by its upper bound.
 *
 * Prometheus's buckets are cumulative; the frame's are not. Where buckets of several histograms
 * come, they are added up by bound.
 */
export function heatmapFrame(found: Series[], refId: string, stepMs: number): DataFrame[] {
  const buckets = found.filter(({ metric }) => metric.le !== undefined);
  if (buckets.length === 0) {
    return [];
  }
  const times = [...new Set(buckets.flatMap(({ points }) => points.map(([t]) => t)))].sort(
    (a, b) => a - b
  );
  const bounds = [...new Set(buckets.map(({ metric }) => metric.le))].sort(
    (a, b) => number(a) - number(b)
  );
  const cumulative = bounds.map((bound) => {
    const sums = new Map<number, number>();
    for (const { points } of buckets.filter(({ metric }) => metric.le === bound)) {
      points.forEach(([t, v]) => sums.set(t, (sums.get(t) ?? 0) + number(v)));
    }
    return times.map((t) => sums.get(t) ?? null);
  });
  const own = cumulative.map((row, i) =>
    row.map((count, t) =>
      count === null ? null : Math.max(0, count - (cumulative[i - 1]?.[t] ?? 0))
    )
  );
  const frame = createDataFrame({
    refId,
    meta: { type: DataFrameType.HeatmapRows },
    fields: [
      {
        name: TIME_SERIES_TIME_FIELD_NAME,
        type: FieldType.time,
        config: { interval: stepMs },
        values: times.map((t) => t * 1000),
      },
      ...bounds.map((bound, i) => ({
        name: bound,
        type: FieldType.number,
        labels: { le: bound },
        config: { displayNameFromDS: bound },
        values: own[i],
      })),
    ],
  });
  return [frame];
}

/** `{{label}}` filled in; without a format, or with none that fits, as Prometheus writes a series. */
function legend(
  metric: Labels,
  query: { expr: string; legendFormat?: string }
): string | undefined {
  const { legendFormat = '', expr } = query;
  const labels = Object.entries(metric).filter(([name]) => name !== '__name__');
  if (legendFormat === '__auto') {
    return labels.length > 0 ? undefined : (metric.__name__ ?? expr);
  }
  if (legendFormat !== '') {
    return legendFormat.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label: string) => metric[label] ?? '');
  }
  const inner = labels.map(([name, value]) => `${name}="${value}"`).join(', ');
  return `${metric.__name__ ?? ''}${inner ? `{${inner}}` : ''}` || expr;
}

function number(text: string): number {
  return text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text);
}
