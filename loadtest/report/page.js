"use strict";
// Draws the figures in the page's own colours, again whenever light and dark change.
(function () {
  const config = {responsive: true, displaylogo: false, displayModeBar: false};
  const plots = Array.from(document.querySelectorAll(".plot"));
  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function themed(layout) {
    const changes = {"font.color": colour("--ink")};
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(key)) {
        changes[key + ".linecolor"] = colour("--quiet");
        changes[key + ".tickcolor"] = colour("--quiet");
        changes[key + ".gridcolor"] = colour("--grid");
      }
    }
    return changes;
  }

  function draw(plot) {
    const figure = JSON.parse(document.getElementById(plot.id + "-data").textContent);
    // Narrow screens wrap the legend over more lines than the figure allows for.
    const names = figure.data.filter((trace) => trace.showlegend !== false).length;
    const lines = Math.ceil(names / Math.max(1, Math.floor(plot.clientWidth / 170)));
    const extra = Math.max(0, lines - 1) * 20;
    figure.layout.margin.t += extra;
    figure.layout.height += extra;
    return Plotly.newPlot(plot, figure.data, figure.layout, config)
      .then(() => Plotly.relayout(plot, themed(figure.layout)));
  }

  const recolour = () => plots.forEach((plot) => Plotly.relayout(plot, themed(plot.layout)));
  const refit = () => plots.forEach((plot) => Plotly.Plots.resize(plot));

  Promise.all(plots.map(draw)).then(() => {
    document.documentElement.dataset.drawn = plots.length;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    matchMedia("print").addEventListener("change", () => { recolour(); refit(); });
  });

  // Paper has nothing to click on; what is too long for it is left out there.
  addEventListener("beforeprint", () =>
    document.querySelectorAll("details:not(.long)").forEach((details) => { details.open = true; }));

  document.querySelectorAll("button[data-copies]").forEach((button) => {
    const source = document.getElementById(button.dataset.copies);
    const name = Array.from(button.childNodes);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        button.textContent = "Copied";
      } catch {
        // Without the clipboard the reader still needs only one key.
        getSelection().selectAllChildren(source);
        button.textContent = "Selected";
      }
      setTimeout(() => button.replaceChildren(...name), 2000);
    });
  });
})();
