"use strict";
// Draws the figures, in the page's colours, and connects the switches of runs, series and scale,
// the mouse, and the buttons that save a figure.
(() => {
  const figures = JSON.parse(document.getElementById("figures-data").textContent);
  const hiddenRuns = new Set();
  const runChips = [...document.querySelectorAll("[data-run]")];
  const runs = Math.max(1, runChips.length);

  const color = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const family = getComputedStyle(document.body).fontFamily.replaceAll('"', "'");
  const themed = () => ({
    font: family,
    ink: color("--ink"),
    soft: color("--soft"),
    line: color("--line"),
  });
  const ON_PAPER = { font: family, ink: "#1d2127", soft: "#444b55", line: "#e3e5e8" };
  const SAVED = 960; // pixels: the width of a figure in a file

  const plots = Object.entries(figures).map(([name, figure]) => {
    const place = document.getElementById(name);
    const { xaxis, yaxis } = figure.layout;
    return {
      name,
      figure,
      place,
      plot: place.querySelector(".plot"),
      hiddenSeries: new Set(figure.data.filter((t) => !t.visible).map((t) => t.meta.series)),
      log: { x: xaxis.type === "log", y: yaxis.type === "log" },
      zoom: { x: null, y: null },
    };
  });

  const shownIn = ({ hiddenSeries }) => ({ meta }) =>
    !hiddenRuns.has(meta.run) && !hiddenSeries.has(meta.series);

  const draw = (each) => {
    const { plot, figure, log, zoom } = each;
    if (!plot.clientWidth) return; // it is folded
    const look = { ...themed(), width: plot.clientWidth, height: figure.layout.height };
    each.drawn = drawing.draw(figure, look, shownIn(each), log, zoom);
    plot.replaceChildren(each.drawn.svg);
  };
  const drawAll = () => plots.forEach(draw);

  if (innerWidth <= 640) document.querySelectorAll(".wide-only").forEach((fold) => (fold.open = false));
  drawAll();
  for (const fold of document.querySelectorAll("details")) {
    fold.addEventListener("toggle", () => plots.filter((each) => fold.contains(each.place)).forEach(draw));
  }
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) drawAll();
    width = innerWidth;
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

  // The mouse: what is under it; dragging zooms, a double click goes back.
  const inFrame = ({ frame }, x, y) =>
    x >= frame.left && x <= frame.right && y >= frame.top && y <= frame.bottom;

  const tell = (each, x, y) => {
    each.plot.querySelector(".told")?.remove();
    const found = inFrame(each.drawn, x, y) ? drawing.nearest(each.drawn, x, y) : null;
    if (!found) return;
    const said = document.createElement("div");
    said.className = "told";
    said.textContent = drawing.told(found);
    if (runs > 1 && found.trace.meta.run >= 0) {
      const run = runChips[found.trace.meta.run];
      said.append(Object.assign(document.createElement("b"), { textContent: run.textContent }), run.title);
    }
    each.plot.append(said);
    const [left, top] = found.at;
    const room = each.plot.clientWidth - said.offsetWidth;
    said.style.left = `${Math.max(0, Math.min(left + 12, room))}px`;
    said.style.top = `${Math.max(0, top - said.offsetHeight - 10)}px`;
  };

  for (const each of plots) {
    const { plot } = each;
    const at = (event) => {
      const box = plot.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let from = null;
    let marked = null;
    const ends = (event) => {
      const { frame } = each.drawn;
      const [x, y] = at(event);
      const to = [
        Math.max(frame.left, Math.min(x, frame.right)),
        Math.max(frame.top, Math.min(y, frame.bottom)),
      ];
      return [0, 1].map((axis) => [from[axis], to[axis]].sort((a, b) => a - b));
    };
    plot.addEventListener("pointerdown", (event) => {
      const [x, y] = at(event);
      if (event.pointerType !== "mouse") tell(each, x, y);
      else if (event.button === 0 && inFrame(each.drawn, x, y)) {
        from = [x, y];
        plot.setPointerCapture(event.pointerId);
        event.preventDefault();
      }
    });
    plot.addEventListener("pointermove", (event) => {
      if (!from) return tell(each, ...at(event));
      const [[x1, x2], [y1, y2]] = ends(event);
      marked ??= plot.appendChild(Object.assign(document.createElement("div"), { className: "marked" }));
      Object.assign(marked.style, { left: `${x1}px`, top: `${y1}px`, width: `${x2 - x1}px`, height: `${y2 - y1}px` });
    });
    plot.addEventListener("pointerup", (event) => {
      if (!from) return;
      const [across, up] = ends(event);
      from = marked = null;
      plot.querySelector(".marked")?.remove();
      const { frame, scales } = each.drawn;
      const wide = across[1] - across[0];
      const high = up[1] - up[0];
      if (Math.max(wide, high) < 8) return;
      const share = (x) => (x - frame.left) / (frame.right - frame.left);
      const rise = (y) => (frame.bottom - y) / (frame.bottom - frame.top);
      if (wide >= 8) each.zoom.x = across.map((x) => scales.x.value(share(x)));
      if (high >= 8) each.zoom.y = [...up].reverse().map((y) => scales.y.value(rise(y)));
      draw(each);
    });
    plot.addEventListener("pointerleave", () => plot.querySelector(".told")?.remove());
    plot.addEventListener("dblclick", () => {
      each.zoom = { x: null, y: null };
      draw(each);
    });
  }

  const press = (button, on) => button.setAttribute("aria-pressed", on);
  const toggle = (set, value) => set.delete(value) || set.add(value);

  const showRuns = () => {
    for (const chip of runChips) press(chip, !hiddenRuns.has(Number(chip.dataset.run)));
    drawAll();
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

  const save = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  const saved = async (each, format) => {
    const look = { ...ON_PAPER, width: SAVED, height: each.figure.layout.height };
    const title = each.place.querySelector("h3").textContent;
    const svg = drawing.picture(each.figure, title, look, shownIn(each), each.log, each.zoom, runs);
    const text = new XMLSerializer().serializeToString(svg);
    const blob = new Blob([text], { type: "image/svg+xml" });
    if (format === "svg") return save(blob, `${each.name}.svg`);
    const image = new Image();
    image.src = URL.createObjectURL(blob);
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = svg.getAttribute("width");
    canvas.height = svg.getAttribute("height");
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(image.src);
    canvas.toBlob((png) => save(png, `${each.name}.png`));
  };

  for (const each of plots) {
    for (const chip of each.place.querySelectorAll("[data-series]")) {
      chip.addEventListener("click", () => {
        toggle(each.hiddenSeries, chip.dataset.series);
        press(chip, !each.hiddenSeries.has(chip.dataset.series));
        draw(each);
      });
    }
    for (const group of each.place.querySelectorAll("[data-axis]")) {
      const { axis } = group.dataset;
      const buttons = [...group.querySelectorAll("[data-scale]")];
      for (const button of buttons) {
        button.addEventListener("click", () => {
          for (const other of buttons) press(other, other === button);
          each.log[axis] = button.dataset.scale === "log";
          each.zoom[axis] = null;
          draw(each);
        });
      }
    }
    for (const button of each.place.querySelectorAll("[data-save]")) {
      button.addEventListener("click", () => saved(each, button.dataset.save));
    }
  }
})();
