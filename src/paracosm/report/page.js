"use strict";
// Draws the figures, in the page's colours, and connects the switches of runs, series and scale.
(() => {
  const figures = JSON.parse(document.getElementById("figures-data").textContent);
  const hiddenRuns = new Set();

  const color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const themed = (layout) => {
    const axes = ["xaxis", "yaxis"].flatMap((axis) => [
      [`${axis}.gridcolor`, color("--line")],
      [`${axis}.linecolor`, color("--line")],
      ...(layout[axis].minor ? [[`${axis}.minor.gridcolor`, color("--line")]] : []),
    ]);
    return Object.fromEntries([
      ["font.color", color("--soft")],
      ["font.family", getComputedStyle(document.body).fontFamily],
      ["font.size", 12],
      ["modebar.bgcolor", "rgba(0,0,0,0)"],
      ["modebar.color", color("--soft")],
      ["modebar.activecolor", color("--ink")],
      ["hoverlabel.font.family", getComputedStyle(document.body).fontFamily],
      ...axes,
    ]);
  };

  const plots = Object.entries(figures).map(([name, { data, layout }]) => {
    const figure = document.getElementById(name);
    const plot = figure.querySelector(".plot");
    const hiddenSeries = new Set(data.filter((t) => !t.visible).map((t) => t.meta.series));
    return { figure, plot, data, layout, hiddenSeries };
  });

  const visibility = ({ data, hiddenSeries }) =>
    data.map(({ meta }) => !hiddenRuns.has(meta.run) && !hiddenSeries.has(meta.series));

  // A finger that drags over a figure scrolls the page; a mouse zooms, and has tools for it.
  const mouse = matchMedia("(hover: hover) and (pointer: fine)").matches;
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: mouse ? "hover" : false,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    // Plotly can offer to upload a chart. Not from here.
    showSendToCloud: false,
    plotlyServerURL: "",
  };

  // A logarithmic axis has 1, 2, 5, 10, 20, ... where there is room, else powers of ten, as plain
  // numbers; one that shows less than a factor of three, or is linear, has what Plotly finds.
  // What it changes itself is no reason to look again: labels and lengths could go on for ever.
  const settling = new Set();
  const ticks = (plot) => {
    if (settling.has(plot)) return;
    const changes = {};
    for (const name of ["xaxis", "yaxis"]) {
      const axis = plot._fullLayout[name];
      if (axis.tickvals || axis.tickformat.endsWith("%")) continue;
      const decades = Math.abs(axis.range[1] - axis.range[0]);
      const room = axis._length / (name === "xaxis" ? 36 : 16);
      let dtick = null;
      if (axis.type === "log" && decades > 0.48) {
        dtick = 3 * decades <= room ? "D2" : Math.max(1, Math.ceil(decades / room));
      }
      const wanted = { dtick, tickmode: dtick ? "linear" : "auto", tickformat: dtick ? ",~g" : "" };
      for (const [key, value] of Object.entries(wanted)) {
        if ((axis[key] ?? null) !== value && (dtick || key !== "dtick")) {
          changes[`${name}.${key}`] = value;
        }
      }
    }
    if (!Object.keys(changes).length) return;
    settling.add(plot);
    Plotly.relayout(plot, changes).finally(() => settling.delete(plot));
  };

  for (const { plot, data, layout } of plots) {
    Plotly.newPlot(plot, data, { ...layout, dragmode: mouse ? "zoom" : false }, config);
    Plotly.relayout(plot, themed(layout));
    ticks(plot);
    plot.on("plotly_relayout", () => ticks(plot));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { plot, layout } of plots) Plotly.relayout(plot, themed(layout));
  });

  const press = (button, on) => button.setAttribute("aria-pressed", on);
  const toggle = (set, value) => set.delete(value) || set.add(value);

  const runChips = [...document.querySelectorAll("[data-run]")];
  const showRuns = () => {
    for (const chip of runChips) press(chip, !hiddenRuns.has(Number(chip.dataset.run)));
    for (const each of plots) Plotly.restyle(each.plot, { visible: visibility(each) });
  };
  for (const chip of runChips) {
    const run = Number(chip.dataset.run);
    chip.addEventListener("click", () => {
      toggle(hiddenRuns, run);
      showRuns();
    });
    // A double click shows this run alone.
    chip.addEventListener("dblclick", () => {
      hiddenRuns.clear();
      for (const other of runChips) hiddenRuns.add(Number(other.dataset.run));
      hiddenRuns.delete(run);
      showRuns();
    });
  }

  for (const each of plots) {
    for (const chip of each.figure.querySelectorAll("[data-series]")) {
      chip.addEventListener("click", () => {
        toggle(each.hiddenSeries, chip.dataset.series);
        press(chip, !each.hiddenSeries.has(chip.dataset.series));
        Plotly.restyle(each.plot, { visible: visibility(each) });
      });
    }
    for (const group of each.figure.querySelectorAll("[data-axis]")) {
      const axis = `${group.dataset.axis}axis`;
      const buttons = [...group.querySelectorAll("[data-scale]")];
      for (const button of buttons) {
        button.addEventListener("click", () => {
          for (const other of buttons) press(other, other === button);
          const { scale } = button.dataset;
          Plotly.relayout(each.plot, { [`${axis}.type`]: scale, [`${axis}.autorange`]: true });
        });
      }
    }
  }
})();
