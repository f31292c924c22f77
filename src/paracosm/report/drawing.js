"use strict";
// Draws a figure as an SVG. A figure is the part of Plotly's format that figures.py writes: lines,
// markers, outlines filled to themselves and horizontal bars, over linear, logarithmic and named
// axes. What is drawn has its colours in it, so that it can be saved as it is.
const drawing = (() => {
  const SIZE = 12; // of letters, pixels
  const LINE = 16;
  const NAMES = 0.45; // share of the width that names of rows may take
  const DASHES = { solid: "", dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "14 4" };
  const SYMBOLS = {
    circle: (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`,
    x: (x, y, r) => `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`,
    "triangle-up": (x, y, r) => `M${x} ${y - r}l${r} ${2 * r}h${-2 * r}z`,
    square: (x, y, r) => `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
    diamond: (x, y, r) => `M${x} ${y - r}l${r} ${r}l${-r} ${r}l${-r} ${-r}z`,
  };

  const element = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  const pen = document.createElement("canvas").getContext("2d");
  const widthOf = (text, font) => {
    pen.font = `${SIZE}px ${font}`;
    return pen.measureText(text).width;
  };

  // Texts of figures are markup, which is Plotly's rule.
  const plain = (text) =>
    /[&<]/.test(text) ? new DOMParser().parseFromString(text, "text/html").body.textContent : text;

  const written = (value) => {
    const size = Math.abs(value);
    if (size && (size >= 1e7 || size < 1e-4)) {
      return value.toExponential(3).replace(/\.?0*e\+?/, "e");
    }
    return value.toLocaleString("en-US", { maximumSignificantDigits: 6 });
  };

  const rounded = (value) => Number(value.toPrecision(12));

  const linearTicks = (low, high, most, whole) => {
    const least = Math.max((high - low) / Math.max(1, most), whole ? 1 : 0);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= least * 0.999);
    const found = [];
    for (let n = Math.ceil(low / step - 1e-6); n * step <= high + 1e-6 * step; n++) {
      found.push(rounded(n * step));
    }
    return found;
  };

  // 1, 2, 5, 10, ... where there is room, else powers of ten; linear below a factor of three.
  const logTicks = (low, high, most, whole) => {
    const decades = Math.log10(high / low);
    if (decades < 0.48) return linearTicks(low, high, most, whole).filter((value) => value > 0);
    const steps = 3 * decades <= most ? [1, 2, 5] : [1];
    const every = steps.length > 1 ? 1 : Math.max(1, Math.ceil(decades / most));
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-6; power++) {
      if (power % every) continue;
      for (const step of steps) {
        const value = Number(`${step}e${power}`);
        if (whole && value < 1) continue;
        if (value >= low * 0.999999 && value <= high * 1.000001) found.push(value);
      }
    }
    return found;
  };

  // Everything that a trace has along "x" or "y".
  const extent = (trace, which) => {
    if (trace.type !== "bar") return trace[which];
    if (which === "x") return [...trace.base, ...trace.base.map((begin, i) => begin + trace.x[i])];
    return trace.y.flatMap((row) => [row - trace.width / 2, row + trace.width / 2]);
  };

  // The scale of an axis: its ends, and where on it a value stands, from 0 to 1.
  const scaleOf = (layout, which, traces, log, zoom) => {
    const forward = log ? Math.log10 : (value) => value;
    const backward = log ? (value) => 10 ** value : (value) => value;
    let ends = zoom?.map(forward);
    if (!ends && layout.range && log === (layout.type === "log")) ends = layout.range;
    if (!ends) {
      let low = Infinity;
      let high = -Infinity;
      for (const trace of traces) {
        for (const value of extent(trace, which)) {
          if (value === null || (log && value <= 0)) continue;
          low = Math.min(low, forward(value));
          high = Math.max(high, forward(value));
        }
      }
      if (low > high) [low, high] = [0, 1];
      if (low === high) {
        const half = log ? 0.3 : Math.abs(low) / 2 || 1;
        [low, high] = [low - half, high + half];
      }
      const isTight = which === "x" && traces.every((trace) => trace.mode !== "markers");
      const margin = isTight ? 0 : 0.05 * (high - low);
      ends = [low - margin, high + margin];
    }
    const [begin, end] = ends;
    return {
      log,
      ends: [backward(begin), backward(end)],
      share: (value) => (forward(value) - begin) / (end - begin),
      value: (share) => backward(begin + share * (end - begin)),
    };
  };

  const ticksOf = (layout, scale, length, room, font) => {
    if (layout.ticktext) {
      return layout.tickvals.map((value, i) => ({ value, text: plain(layout.ticktext[i]) }));
    }
    const find = scale.log ? logTicks : linearTicks;
    const low = Math.min(...scale.ends);
    const high = Math.max(...scale.ends);
    const whole = layout.tickformat === ",d";
    const text = layout.tickformat && !whole
      ? (value) => `${written(rounded(100 * value))}%`
      : written;
    let values = find(low, high, length / room, whole);
    if (layout.horizontal) {
      const widest = Math.max(room, ...values.map((value) => widthOf(text(value), font) + 14));
      values = find(low, high, length / widest, whole);
    }
    return values.map((value) => ({ value, text: text(value) }));
  };

  const shortened = (text, most, font) => {
    if (widthOf(text, font) <= most) return text;
    let kept = text.length;
    while (kept > 1 && widthOf(`${text.slice(0, kept)}…`, font) > most) kept--;
    return `${text.slice(0, kept)}…`;
  };

  const tenths = (value) => Math.round(10 * value) / 10;

  // The path of a trace, and the places by which the mouse finds its points.
  const traced = (trace, x, y) => {
    const places = [];
    let path = "";
    if (trace.type === "bar") {
      trace.base.forEach((begin, i) => {
        const left = x(begin);
        const right = Math.max(x(begin + trace.x[i]), left + 0.7);
        const [top, bottom] = [-1, 1].map((side) => y(trace.y[i] + (side * trace.width) / 2));
        path += `M${tenths(left)} ${tenths(top)}H${tenths(right)}V${tenths(bottom)}H${tenths(left)}z`;
        places.push([left, Math.min(top, bottom), right, Math.max(top, bottom)]);
      });
      return { path, places };
    }
    let command = "M";
    const radius = (trace.marker?.size ?? 7) / 2;
    trace.x.forEach((value, i) => {
      const at = [x(value), y(trace.y[i])];
      if (value === null || trace.y[i] === null || !at.every(Number.isFinite)) {
        places.push(null);
        command = "M";
        return;
      }
      places.push(at);
      const [left, top] = at.map(tenths);
      if (trace.mode === "markers") {
        path += (SYMBOLS[trace.marker.symbol] ?? SYMBOLS.circle)(left, top, radius);
      } else {
        path += `${command}${left} ${top}`;
        command = "L";
      }
    });
    return { path: trace.fill && path ? `${path}z` : path, places };
  };

  const painted = (trace) => {
    const opacity = trace.opacity ?? 1;
    if (trace.type === "bar") return { fill: trace.marker.color };
    if (trace.mode === "markers") {
      const { color, symbol } = trace.marker;
      const shade = { opacity: trace.marker.opacity ?? opacity };
      return symbol === "x"
        ? { ...shade, fill: "none", stroke: color, "stroke-width": 2 }
        : { ...shade, fill: color };
    }
    return {
      opacity,
      fill: trace.fill ? trace.fillcolor : "none",
      stroke: trace.line.color,
      "stroke-width": trace.line.width,
      "stroke-dasharray": DASHES[trace.line.dash] ?? "",
      "stroke-linejoin": "round",
    };
  };

  let drawn = 0;

  // Draws the traces that are `shown`; `look` has width, height, font and colours, `log` and `zoom`
  // say how each axis is scaled, `head` leaves pixels free at the top.
  const draw = ({ data, layout }, look, shown, log, zoom, head = 0) => {
    const { width, height, font, ink, soft, line } = look;
    const traces = data.filter(shown);
    const across = { ...layout.xaxis, horizontal: true };
    const up = layout.yaxis;
    const [titleX, titleY] = [across, up].map((axis) => axis.title?.text ?? "");
    const frame = {
      top: 10 + head,
      right: width - 14,
      bottom: height - LINE - 8 - (titleX ? LINE + 2 : 0),
    };
    const scales = {
      x: scaleOf(across, "x", traces, log.x, zoom.x),
      y: scaleOf(up, "y", traces, log.y, zoom.y),
    };
    const rows = ticksOf(up, scales.y, frame.bottom - frame.top, up.ticktext ? 1 : 34, font);
    for (const row of rows) row.shown = shortened(row.text, NAMES * width, font);
    const widest = Math.max(0, ...rows.map(({ shown }) => widthOf(shown, font)));
    frame.left = widest + 8 + (titleY ? LINE + 4 : 4);
    const columns = ticksOf(across, scales.x, frame.right - frame.left, scales.x.log ? 36 : 56, font);
    const x = (value) => frame.left + scales.x.share(value) * (frame.right - frame.left);
    const y = (value) => frame.bottom - scales.y.share(value) * (frame.bottom - frame.top);

    const svg = element("svg", {
      xmlns: "http://www.w3.org/2000/svg",
      class: "drawing",
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      "font-family": font,
      "font-size": SIZE,
      fill: soft,
    });
    const text = (content, attributes) => {
      if (!content) return null;
      const made = element("text", attributes);
      made.textContent = content;
      svg.append(made);
      return made;
    };
    const rule = (x1, y1, x2, y2) =>
      svg.append(element("path", { d: `M${tenths(x1)} ${tenths(y1)}L${tenths(x2)} ${tenths(y2)}`, stroke: line }));

    for (const { value, text: label } of columns) {
      rule(x(value), frame.top, x(value), frame.bottom);
      const half = widthOf(label, font) / 2;
      const middle = Math.min(x(value), width - half - 1);
      text(label, { class: "tick x", x: tenths(middle), y: frame.bottom + LINE, "text-anchor": "middle" });
    }
    for (const { value, text: label, shown: name } of rows) {
      const at = y(value);
      if (at < frame.top - 1 || at > frame.bottom + 1) continue;
      if (up.ticktext) {
        if (value) rule(frame.left, y(value - 0.5), frame.right, y(value - 0.5));
      } else {
        rule(frame.left, at, frame.right, at);
      }
      const made = text(name, { class: "tick y", x: frame.left - 6, y: tenths(at + 4), "text-anchor": "end" });
      if (name !== label) made.append(element("title", {}, label));
    }
    text(titleX, { class: "title", x: (frame.left + frame.right) / 2, y: height - 6, "text-anchor": "middle" });
    const middle = (frame.top + frame.bottom) / 2;
    text(titleY, { class: "title", x: SIZE, y: middle, transform: `rotate(-90 ${SIZE} ${middle})`, "text-anchor": "middle" });

    const clip = `inside-${++drawn}`;
    const box = { x: frame.left, y: frame.top, width: Math.max(1, frame.right - frame.left), height: Math.max(1, frame.bottom - frame.top) };
    svg.append(element("clipPath", { id: clip }, element("rect", box)));
    const inside = element("g", { "clip-path": `url(#${clip})` });
    const found = [];
    for (const trace of traces) {
      const { path, places } = traced(trace, x, y);
      found.push({ trace, places });
      inside.append(
        element("path", { class: "trace", d: path, "data-run": trace.meta.run, "data-series": trace.meta.series, ...painted(trace) }),
      );
    }
    svg.append(element("rect", { ...box, fill: "none", stroke: line }), inside);
    return { svg, frame, scales, found, ink };
  };

  // What is at a place of a drawing: the bar there, or the nearest point.
  const nearest = ({ found, frame }, left, top, reach = 24) => {
    let best = null;
    let least = reach ** 2;
    for (const { trace, places } of found) {
      if (trace.hoverinfo === "skip") continue;
      places.forEach((place, i) => {
        if (!place) return;
        const [x1, y1, x2 = x1, y2 = y1] = place;
        if (x2 < frame.left || x1 > frame.right) return;
        const across = Math.max(x1 - left, 0, left - x2);
        const up = Math.max(y1 - top, 0, top - y2);
        // What is on top counts where several are there.
        const distance = across ** 2 + up ** 2;
        if (distance > least || (trace.type === "bar" && up > 0)) return;
        least = distance;
        best = { trace, i, at: [Math.max(x1, Math.min(left, x2)), y1] };
      });
    }
    return best;
  };

  const told = ({ trace, i }) => {
    if (trace.text) return plain(trace.text[i]);
    if (trace.meta.run < 0) return plain(trace.name);
    return `${trace.meta.series} ${written(trace.y[i])} at ${written(trace.x[i])}`;
  };

  // Draws a figure with its title and legend in it, dark on white, as a file of its own.
  const picture = (figure, title, look, shown, log, zoom, runs) => {
    const entries = new Map();
    const main = figure.data.find((trace) => shown(trace) && trace.opacity !== 0.4)?.meta.series;
    for (const trace of figure.data.filter(shown)) {
      const { run, series } = trace.meta;
      const name = plain(trace.name);
      const label = runs < 2 || run < 0 ? series : series === main ? name : `${name}: ${series}`;
      entries.set(label, [...(entries.get(label) ?? []), trace]);
    }
    const { width, font } = look;
    const rows = [[]];
    let left = 8;
    for (const [label, traces] of entries) {
      const taken = widthOf(label, font) + 40;
      if (left + taken > width && rows.at(-1).length) {
        rows.push([]);
        left = 8;
      }
      rows.at(-1).push({ label, traces, left });
      left += taken;
    }
    const head = 26 + LINE * rows.length;
    const size = { ...look, height: look.height + head };
    const { svg } = draw(figure, size, shown, log, zoom, head);
    svg.prepend(element("rect", { width, height: size.height, fill: "#ffffff" }));
    const heading = element("text", { x: 8, y: 20, "font-size": 14, "font-weight": 600, fill: look.ink });
    heading.textContent = title;
    svg.append(heading);
    rows.forEach((row, number) => {
      const top = 26 + LINE * number;
      for (const { label, traces, left: begin } of row) {
        // One of each kind: a line with points on it shows both.
        const kinds = new Map(traces.map((trace) => [trace.type + trace.mode + trace.fill, trace]));
        for (const trace of kinds.values()) {
          const d = trace.mode === "markers"
            ? SYMBOLS[trace.marker.symbol](begin + 9, top + 8, trace.marker.size / 2)
            : trace.mode ? `M${begin} ${top + 8}h18` : `M${begin} ${top + 4}h18v8h-18z`;
          svg.append(element("path", { d, ...painted(trace) }));
        }
        const name = element("text", { x: begin + 24, y: top + 12 });
        name.textContent = label;
        svg.append(name);
      }
    });
    // Twice as large as on a screen.
    svg.setAttribute("width", 2 * width);
    svg.setAttribute("height", 2 * size.height);
    return svg;
  };

  return { draw, nearest, picture, told };
})();
