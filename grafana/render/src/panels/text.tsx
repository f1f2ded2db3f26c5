import { FieldColorModeId, PanelProps, renderTextPanelMarkdown, textUtil } from '@grafana/data';
import { plugin } from './plugin';

interface Options {
  mode: 'markdown' | 'html' | 'code';
  content: string;
}

function Panel({ options, replaceVariables }: PanelProps<Options>) {
  const text = replaceVariables(options.content, {}, 'text');
  if (options.mode === 'code') {
    return <pre>{text}</pre>;
  }
  const html = options.mode === 'html' ? textUtil.sanitize(text) : renderTextPanelMarkdown(text);
  return <div className="markdown-html" dangerouslySetInnerHTML={{ __html: html }} />;
}

export const text = plugin<Options>({
  component: Panel,
  colour: FieldColorModeId.Thresholds,
  options: { mode: 'markdown', content: '' },
});
