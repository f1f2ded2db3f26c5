import { Dashboard } from '@grafana/schema';

/** What the Python side asks for; it serves it as `settings.json`. */
export interface Settings {
  dashboard: Dashboard;
  /** Unix times in seconds. */
  start: number;
  end: number;
  /** Values by the name of a variable, instead of the dashboard's own. */
  variables: Record<string, string | string[]>;
  source: SourceSettings;
}

export interface SourceSettings {
  uid: string;
  name: string;
  /** `timeInterval` of the provisioned source: how often Prometheus scrapes. */
  scrapeInterval: string;
}
