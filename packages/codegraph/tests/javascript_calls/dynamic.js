//// a member by a constant key
//> main -> table.run
const table = {
  run() {},
};
table["run"]();

//// a member by a constant in a variable
//> main -> table.run
const table = {
  run() {},
};
const key = "run";
table[key]();

//// a member by any key
//> dispatch -> table.start, table.stop; main -> dispatch
const table = {
  start() {},
  stop() {},
};
function dispatch(name) {
  table[name]();
}
dispatch("start");
dispatch("stop");

//// a key put together
//> main -> table.onLoad
const table = {
  onLoad() {},
};
table["on" + "Load"]();

//// keys of an object in a loop
//> main -> table.a, table.b
const table = {
  a() {},
  b() {},
};
for (const key of Object.keys(table)) {
  table[key]();
}

//// keys by for in
//> main -> table.a, table.b
const table = { a: () => 1, b: () => 2 };
for (const key in table) {
  table[key]();
}

//// a computed name in an object
//> main -> work
const NAME = "task";
function work() {}
const table = { [NAME]: work };
table.task();

//// code in a string
//> main -> hidden
function hidden() {}
eval("hidden()");

//// a function made of text
//> main -> (nothing)
const made = new Function("return 1");
made();

//// the global object
//> main -> visible
function visible() {}
globalThis["visible"]();

//// a table of functions chosen with a fallback
//> choose -> table.csv, table.json, other; main -> choose
const table = {
  csv() {},
  json() {},
};
function other() {}
function choose(kind) {
  const pick = table[kind] || other;
  return pick();
}
choose("csv");

//// a proxy
//> main -> target.work
const target = {
  work() {},
};
const proxy = new Proxy(target, {});
proxy.work();

//// a method by Reflect.get
//> main -> target.work
const target = {
  work() {},
};
Reflect.get(target, "work")();
