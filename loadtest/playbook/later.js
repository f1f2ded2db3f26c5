"use strict";
// Draws the small figures when they come near: a page may have forty, and few are looked at.
(function () {
  const config = {responsive: true, displaylogo: false, displayModeBar: false};
  const plots = Array.from(document.querySelectorAll(".later"));
  const isDrawn = (plot) => plot.classList.contains("js-plotly-plot");
  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function themed() {
    const changes = {"font.color": colour("--ink")};
    for (const axis of ["xaxis", "yaxis"]) {
      changes[axis + ".linecolor"] = changes[axis + ".tickcolor"] = colour("--quiet");
      changes[axis + ".gridcolor"] = colour("--grid");
    }
    return changes;
  }

  function draw(plot) {
    if (isDrawn(plot)) return;
    const figure = JSON.parse(document.getElementById(plot.id + "-data").textContent);
    Plotly.newPlot(plot, figure.data, figure.layout, config)
      .then(() => Plotly.relayout(plot, themed()));
  }

  const recolour = () => plots.filter(isDrawn).forEach((plot) => Plotly.relayout(plot, themed()));
  const near = new IntersectionObserver((seen) => {
    for (const one of seen.filter((one) => one.isIntersecting)) {
      near.unobserve(one.target);
      draw(one.target);
    }
  }, {rootMargin: "600px"});
  plots.forEach((plot) => near.observe(plot));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  matchMedia("print").addEventListener("change", () => {
    recolour();
    plots.filter(isDrawn).forEach((plot) => Plotly.Plots.resize(plot));
  });
  addEventListener("beforeprint", () => plots.forEach(draw));
})();
