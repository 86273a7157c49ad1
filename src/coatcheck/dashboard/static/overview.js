// The overview's charts: drawn once, updated whenever the page's stream sends new figures.
"use strict";

const CHARTS = {
  throughput: {
    lines: [["submitted", "Submitted", "--busy"], ["completed", "Completed", "--good"], ["failed", "Failed", "--bad"]],
    show: (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 }),
  },
  starts: {
    lines: [["start_p50", "p50", "--accent"], ["start_p99", "p99", "--later"]],
    show: showSeconds,
    isTime: true,
  },
  runs: {
    lines: [["run_p50", "p50", "--accent"], ["run_p99", "p99", "--later"]],
    show: showSeconds,
    isTime: true,
  },
};
const HEIGHT = 190;
const drawn = new Map();

function showSeconds(value) {
  if (value < 1) return `${Number((value * 1000).toPrecision(2))} ms`;
  if (value < 600) return `${Number(value.toPrecision(2))} s`;
  if (value < 3600) return `${Number((value / 60).toPrecision(2))} min`;
  return `${Number((value / 3600).toPrecision(2))} h`;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function figures() {
  return JSON.parse(document.getElementById("chart").getAttribute("value"));
}

function dataOf(chart, all) {
  return [all.at, ...chart.lines.map(([name]) => all[name])];
}

// Times span orders of magnitude, so their scale is logarithmic, from one power of ten to another.
function timeRange(plot, least, most) {
  if (least == null || least <= 0) return [0.001, 1];
  return [10 ** Math.floor(Math.log10(least)), 10 ** Math.ceil(Math.log10(most * 1.0001))];
}

function rateRange(plot, least, most) {
  return [0, most > 0 ? most * 1.1 : 1];
}

function options(element, chart) {
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    font: `11px ${getComputedStyle(document.body).fontFamily}`,
  };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    // UTC, as all times on pages, so that everybody sees the same chart.
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    padding: [8, 20, 0, 0],
    cursor: { y: false, drag: { x: false, y: false } },
    legend: { live: true, markers: { width: 0, fill: (plot, at) => plot.series[at].stroke() } },
    scales: {
      x: { time: true },
      y: chart.isTime ? { distr: 3, range: timeRange } : { range: rateRange },
    },
    axes: [
      { ...axis, size: 28, space: 70, values: timeLabels },
      {
        ...axis,
        size: 58,
        values: (plot, splits) => splits.map((each) => (each == null ? "" : chart.show(each))),
        ...(chart.isTime ? { filter: powersOfTen, grid: { ...axis.grid, filter: powersOfTen } } : {}),
      },
    ],
    series: [
      { value: (plot, at) => (at == null ? "" : new Date(at * 1000).toLocaleString([], { dateStyle: "short", timeStyle: "short", timeZone: "UTC" })) },
      ...chart.lines.map(([, label, name]) => ({
        label,
        stroke: () => colour(name),
        width: 1.75,
        spanGaps: true,
        points: { show: false },
        value: (plot, value) => (value == null ? "" : chart.show(value)),
      })),
    ],
  };
}

function powersOfTen(plot, splits) {
  return splits.map((each) => (Math.abs(Math.log10(each) - Math.round(Math.log10(each))) < 1e-9 ? each : null));
}

function timeLabels(plot, splits) {
  // One label per grid line; within a day the time is enough.
  const isLong = plot.scales.x.max - plot.scales.x.min > 86400 * 1.1;
  const format = isLong ? { weekday: "short", hour: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
  return splits.map((each) => new Date(each * 1000).toLocaleString([], { ...format, hourCycle: "h23", timeZone: "UTC" }));
}

function draw() {
  const all = figures();
  for (const [id, chart] of Object.entries(CHARTS)) {
    const element = document.getElementById(id);
    drawn.get(id)?.destroy();
    drawn.set(id, new uPlot(options(element, chart), dataOf(chart, all), element));
  }
}

function update() {
  const all = figures();
  for (const [id, chart] of Object.entries(CHARTS)) drawn.get(id)?.setData(dataOf(chart, all));
}

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id === "series") update();
});
document.addEventListener("htmx:sseMessage", (event) => {
  if (event.target.id === "series") update();
});
document.addEventListener("coatcheck:theme", draw);
new ResizeObserver(() => {
  for (const [id, plot] of drawn) {
    const width = document.getElementById(id).clientWidth;
    if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
  }
}).observe(document.getElementById("main"));
draw();
