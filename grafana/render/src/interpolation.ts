import { sceneGraph } from '@grafana/scenes';
import { DataQueryRequest, ScopedVars, TimeRange, rangeUtil } from '@grafana/data';
import type { PromQuery } from './prometheus';

/** Prometheus refuses more points than this in one series. */
const MOST_POINTS = 11_000;

/**
 * The step of a range query in ms.
 *
 * As Grafana's documentation of the Prometheus source has it: what fits the panel's points, not
 * below the query's min step, else the source's scrape interval.
 */
export function step(request: DataQueryRequest<PromQuery>, minStep: string): number {
  const { range, maxDataPoints = 500 } = request;
  const fitting = rangeUtil.calculateInterval(range, maxDataPoints, minStep).intervalMs;
  const length = range.to.valueOf() - range.from.valueOf();
  return Math.max(fitting, Math.ceil(length / MOST_POINTS));
}

/** `$__interval`, `$__rate_interval` = max(step + scrape, 4 scrape), and `$__range`. */
export function intervals(stepMs: number, scrapeMs: number, range: TimeRange): ScopedVars {
  const rangeMs = range.to.valueOf() - range.from.valueOf();
  const rangeS = Math.round(rangeMs / 1000);
  return {
    __interval: scoped(duration(stepMs)),
    __interval_ms: scoped(stepMs),
    __rate_interval: scoped(duration(Math.max(stepMs + scrapeMs, 4 * scrapeMs))),
    __range: scoped(`${rangeS}s`),
    __range_s: scoped(rangeS),
    __range_ms: scoped(rangeMs),
  };
}

/** The text with variables filled in, values escaped for a PromQL string. */
export function filled(text: string, vars: ScopedVars): string {
  return sceneGraph.interpolate(vars.__sceneObject?.value.valueOf(), text, vars, quoted);
}

function quoted(value: unknown, variable: { multi?: boolean; includeAll?: boolean }): string {
  if (Array.isArray(value)) {
    const each = value.map((one) => asRegex(String(one)));
    return each.length === 1 ? each[0] : `(${each.join('|')})`;
  }
  const regex = variable.multi || variable.includeAll;
  return regex ? asRegex(String(value)) : String(value).replace(/[\\"']/g, '\\$&');
}

/** Twice escaped, since a regular expression stands in a quoted string. */
function asRegex(value: string): string {
  return value.replace(/\\/g, '\\\\\\\\').replace(/[$^*{}[\]'+?.()|]/g, '\\\\$&');
}

function duration(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`;
}

function scoped(value: string | number) {
  return { text: String(value), value };
}
