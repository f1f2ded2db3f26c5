import {
  AnnotationEvent,
  AnnotationQuery,
  DataFrame,
  DataQuery,
  DataQueryError,
  DataQueryRequest,
  DataQueryResponse,
  MetricFindValue,
  ScopedVars,
  TimeRange,
  rangeUtil,
} from '@grafana/data';
import { RuntimeDataSource } from '@grafana/runtime';
import { of } from 'rxjs';
import { Series, heatmapFrame, seriesFrames, tableFrame } from './frames';
import { filled, intervals, step } from './interpolation';
import { SourceSettings } from './settings';

export interface PromQuery extends DataQuery {
  expr: string;
  range?: boolean;
  instant?: boolean;
  format?: 'time_series' | 'table' | 'heatmap';
  legendFormat?: string;
  /** The least step, as in `10s`. */
  interval?: string;
  intervalFactor?: number;
}

type PromAnnotation = AnnotationQuery<PromQuery> & {
  expr?: string;
  step?: string;
  titleFormat?: string;
  textFormat?: string;
  tagKeys?: string;
  useValueForTime?: boolean | string;
};

interface Answer {
  status: 'success' | 'error';
  error?: string;
  data: unknown;
}

interface Result {
  resultType: 'matrix' | 'vector' | 'scalar';
  result: Array<{ metric: Series['metric']; values?: Series['points']; value?: [number, string] }>;
}

/** Grafana's Prometheus source, as far as these dashboards use it, straight to Prometheus's API. */
export class Prometheus extends RuntimeDataSource {
  readonly annotations: object;

  constructor(private readonly source: SourceSettings) {
    super('prometheus', source.uid);
    this.interval = source.scrapeInterval;
    Object.assign(this.instanceSettings, { name: source.name, isDefault: true });
    this.meta.metrics = true;
    this.annotations = {
      prepareAnnotation: (asked: PromAnnotation) => asked,
      prepareQuery: (asked: PromAnnotation) => annotationQuery(asked, source.scrapeInterval),
      processEvents: (asked: PromAnnotation, frames: DataFrame[]) => of(events(asked, frames)),
    };
  }

  async query(request: DataQueryRequest): Promise<DataQueryResponse> {
    const asked = request as DataQueryRequest<PromQuery>;
    const targets = asked.targets.filter((target) => target.expr && !target.hide);
    const errors: DataQueryError[] = [];
    const found = await Promise.all(
      targets.map((target) =>
        this.one(target, asked).catch((error: Error) => {
          errors.push({ refId: target.refId, message: error.message });
          return [];
        })
      )
    );
    return { data: found.flat(), errors };
  }

  private async one(target: PromQuery, request: DataQueryRequest<PromQuery>): Promise<DataFrame[]> {
    const least = filled(target.interval ?? '', request.scopedVars) || this.source.scrapeInterval;
    const stepMs = step(request, least) * (target.intervalFactor || 1);
    const scrapeMs = rangeUtil.intervalToMs(least);
    const vars = { ...request.scopedVars, ...intervals(stepMs, scrapeMs, request.range) };
    const query = { ...target, expr: filled(target.expr, vars) };
    const answers = [];
    if (target.range || !target.instant) {
      answers.push(
        await ask('query_range', { query: query.expr, ...aligned(request.range, stepMs) })
      );
    }
    if (target.instant) {
      answers.push(
        await ask('query', { query: query.expr, time: request.range.to.valueOf() / 1000 })
      );
    }
    const found = answers.flatMap((answer) => series(answer as Result));
    if (target.format === 'table') {
      const several = request.targets.length > 1;
      return tableFrame(found, target.refId, several ? `Value #${target.refId}` : 'Value');
    }
    if (target.format === 'heatmap') {
      return heatmapFrame(found, target.refId, stepMs);
    }
    const legendFormat = filled(target.legendFormat ?? '', vars);
    return seriesFrames(found, { ...query, legendFormat }, stepMs);
  }

  /** Values of a query variable: `label_values`, `label_names`, `metrics` and `query_result`. */
  async metricFindQuery(
    asked: string | { query?: string },
    options: { range?: TimeRange; scopedVars?: ScopedVars } = {}
  ): Promise<MetricFindValue[]> {
    const { range, scopedVars = {} } = options;
    if (!range) {
      throw new Error('a variable was asked without a time range');
    }
    const rangeMs = range.to.valueOf() - range.from.valueOf();
    const vars = { ...scopedVars, ...intervals(rangeMs, 0, range) };
    const text = filled(typeof asked === 'string' ? asked : (asked.query ?? ''), vars).trim();
    const [, call, inner = ''] = /^(\w+)\((.*)\)$/s.exec(text) ?? [];
    const within = { start: range.from.valueOf() / 1000, end: range.to.valueOf() / 1000 };
    const named = async (path: string, match: string) => {
      const names = (await ask(path, {
        ...within,
        ...(match && { 'match[]': match }),
      })) as string[];
      return names.map((name) => ({ text: name, value: name }));
    };
    switch (call) {
      case 'label_values': {
        const [, match = '', label] = /^(?:(.*),)?\s*([\w.]+)\s*$/s.exec(inner) ?? [];
        return named(`label/${label}/values`, match.trim());
      }
      case 'label_names':
        return named('labels', inner.trim());
      case 'metrics': {
        const names = await named('label/__name__/values', '');
        return names.filter(({ text: name }) => new RegExp(inner.trim()).test(name));
      }
      case 'query_result': {
        const answer = (await ask('query', { query: inner, time: within.end })) as Result;
        const one = seriesText;
        return series(answer).map((each) => ({ text: one(each), value: one(each) }));
      }
      default:
        throw new Error(`a variable's query is not understood: ${text}`);
    }
  }
}

/** What Prometheus answers under `data`; its own error text is raised. */
async function ask(path: string, parameters: Record<string, string | number>): Promise<unknown> {
  const texts = Object.entries(parameters).map(([name, value]) => [name, String(value)]);
  const reply = await fetch(`/api/v1/${path}?${new URLSearchParams(texts)}`);
  const answer: Answer = await reply.json();
  if (answer.status !== 'success') {
    throw new Error(answer.error ?? `Prometheus answered ${reply.status}`);
  }
  return answer.data;
}

/** Start and end at whole steps, so that points do not wander while time passes. */
function aligned(range: TimeRange, stepMs: number) {
  const floor = (ms: number) => (Math.floor(ms / stepMs) * stepMs) / 1000;
  return {
    start: floor(range.from.valueOf()),
    end: floor(range.to.valueOf()),
    step: stepMs / 1000,
  };
}

function series(answer: Result): Series[] {
  if (answer.resultType === 'scalar') {
    return [{ metric: {}, points: [answer.result as unknown as [number, string]] }];
  }
  return answer.result.map(({ metric, values, value }) => ({
    metric,
    points: values ?? (value ? [value] : []),
  }));
}

function seriesText({ metric, points }: Series): string {
  const { __name__ = '', ...labels } = metric;
  const inner = Object.entries(labels).map(([name, value]) => `${name}="${value}"`);
  return `${__name__}{${inner.join(',')}} ${points[0][1]} ${points[0][0] * 1000}`;
}

function annotationQuery(asked: PromAnnotation, scrapeInterval: string): PromQuery | undefined {
  const expr = asked.target?.expr ?? asked.expr;
  const interval = asked.step || asked.target?.interval || scrapeInterval;
  return expr ? { refId: 'Anno', expr, interval, range: true } : undefined;
}

/** Neighbouring points above zero are one event: a region, where there is more than one. */
function events(asked: PromAnnotation, frames: DataFrame[]): AnnotationEvent[] {
  const tags = (asked.tagKeys ?? '').split(',').map((key) => key.trim());
  return frames.flatMap((frame) => {
    const [times, values] = frame.fields;
    const labels = values.labels ?? {};
    const text = (format = '') =>
      format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label: string) => labels[label] ?? '');
    const shared = {
      title: text(asked.titleFormat || asked.name),
      text: text(asked.textFormat),
      tags: tags.filter((key) => key in labels).map((key) => labels[key]),
      color: asked.iconColor,
    };
    const above = values.values.map((_, i) => i).filter((i) => values.values[i] > 0);
    if (asked.useValueForTime) {
      const own = new Set(above.map((i) => Math.floor(values.values[i])));
      return [...own].map((time) => ({ ...shared, time, timeEnd: time }));
    }
    const found: AnnotationEvent[] = [];
    for (const time of above.map((i) => times.values[i])) {
      const last = found.at(-1);
      if (last?.timeEnd !== undefined && time - last.timeEnd <= (times.config.interval ?? 0)) {
        last.timeEnd = time;
        last.isRegion = true;
      } else {
        found.push({ ...shared, time, timeEnd: time });
      }
    }
    return found;
  });
}
