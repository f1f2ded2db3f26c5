import { ThemeContext } from '@grafana/data';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { EmbeddedScene } from '@grafana/scenes';
import { createRoot } from 'react-dom/client';
import { MemoryRouter } from 'react-router-dom';
import { setUp, theme } from './host';
import { registerPanels } from './panels';
import { Prometheus } from './prometheus';
import { Report, report, waitedFor } from './report';
import { scene } from './scene';
import { Settings } from './settings';

declare global {
  interface Window {
    /** Set when the page is drawn, or cannot be. */
    drawn?: Report | { failure: string };
    /** Titles of panels without an answer. */
    waitedFor?: () => string[];
  }
}

const QUIET_MS = 300;

function Page({ model }: { model: EmbeddedScene }) {
  return (
    <ThemeContext.Provider value={theme}>
      <MemoryRouter>
        <GlobalStyles />
        <div style={{ padding: theme.spacing(2) }}>
          <model.Component model={model} />
        </div>
        <PortalContainer />
      </MemoryRouter>
    </ThemeContext.Provider>
  );
}

/** The type face of Grafana, before anything is drawn: a canvas does not change its text later. */
async function loadFonts(): Promise<void> {
  const weights = { 400: 'Regular', 500: 'Medium' };
  const faces = Object.entries(weights).map(
    ([weight, name]) =>
      new FontFace('Inter', `url(/public/fonts/inter/Inter-${name}.woff2)`, { weight })
  );
  for (const face of await Promise.all(faces.map((each) => each.load()))) {
    document.fonts.add(face);
  }
}

/** Resolves when every query is answered and the page has not changed for a while. */
async function settled(model: EmbeddedScene): Promise<void> {
  let changed = performance.now();
  const observer = new MutationObserver(() => (changed = performance.now()));
  observer.observe(document.body, { subtree: true, childList: true, attributes: true });
  while (waitedFor(model).length > 0 || performance.now() - changed < QUIET_MS) {
    await new Promise((resolve) => setTimeout(resolve, QUIET_MS / 3));
  }
  observer.disconnect();
}

async function main() {
  const settings: Settings = await (await fetch('settings.json')).json();
  await loadFonts();
  await setUp(new Prometheus(settings.source));
  registerPanels();
  const model = scene(settings);
  window.waitedFor = () => waitedFor(model);
  createRoot(document.getElementById('page')!).render(<Page model={model} />);
  await settled(model);
  window.drawn = report(model, settings);
}

main().catch((error: Error) => {
  window.drawn = { failure: error.message };
});
