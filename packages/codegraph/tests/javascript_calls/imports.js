//// named exports
//> main -> tools.js:open, tools.js:shut
import { open, close as shut } from "./tools.js";
open();
shut();
//// file: tools.js
//> open -> help
function help() {}
export function open() {
  help();
}
function shut() {}
export { shut as close };

//// default export of a named function
//> main -> tools.js:build
import make from "./tools.js";
make();
//// file: tools.js
export default function build() {}

//// default export of a function without a name
//> main -> tools.js:default
import make from "./tools.js";
make();
//// file: tools.js
//> default -> help
function help() {}
export default function () {
  help();
}

//// default export of an arrow function
//> main -> tools.js:default
import make from "./tools.js";
make();
//// file: tools.js
export default () => 1;

//// default export of a class without a name
//> main -> shape.js:default.constructor, shape.js:default.area
import Shape from "./shape.js";
new Shape().area();
//// file: shape.js
export default class {
  constructor() {
    this.a = 1;
  }
  area() {}
}

//// a namespace
//> main -> tools.js:open
import * as tools from "./tools.js";
tools.open();
//// file: tools.js
export const open = () => 1;

//// exported again
//> main -> inner.js:open, inner.js:close
import { open, shut } from "./index.js";
open();
shut();
//// file: index.js
export { open } from "./inner.js";
export { close as shut } from "./inner.js";
//// file: inner.js
export function open() {}
export function close() {}

//// everything exported again
//> main -> inner.js:open
import { open } from "./index.js";
open();
//// file: index.js
export * from "./inner.js";
//// file: inner.js
export function open() {}

//// module.exports with functions
//> main -> tools.js:open, tools.js:close
const tools = require("./tools");
tools.open();
const { close } = require("./tools");
close();
//// file: tools.js
function open() {}
function close() {}
module.exports = { open, close };

//// exports.name
//> main -> tools.js:exports.open
const { open } = require("./tools");
open();
//// file: tools.js
exports.open = function () {};

//// module.exports is one function
//> main -> tools.js:build
const build = require("./tools");
build();
//// file: tools.js
module.exports = function build() {};

//// module.exports is a class
//> main -> store.js:Store.constructor, store.js:Store.get
const Store = require("./store");
new Store().get();
//// file: store.js
class Store {
  constructor() {
    this.a = 1;
  }
  get() {}
}
module.exports = Store;

//// an instance is exported
//> main -> bus.js:Bus.send
import { bus } from "./bus.js";
bus.send();
//// file: bus.js
//> main -> Bus.constructor
class Bus {
  constructor() {
    this.a = 1;
  }
  send() {}
}
export const bus = new Bus();

//// a function of another file as a callback
//> main -> run.js:run
import { run } from "./run.js";
import { task } from "./task.js";
run(task);
//// file: run.js
//> run -> task.js:task
export function run(fn) {
  fn();
}
//// file: task.js
export function task() {}

//// a closure of another file
//> main -> make.js:make, make.js:make.(anonymous)
import { make } from "./make.js";
const fn = make();
fn();
//// file: make.js
//> make.(anonymous) -> help
function help() {}
export const make = () => () => help();

//// a table of functions in another file
//> main -> table.js:handlers.start, table.js:stop
import { handlers } from "./table.js";
handlers.start();
handlers["stop"]();
//// file: table.js
function stop() {}
export const handlers = { start() {}, stop };

//// imported while running
//> main -> go; go -> tools.js:open
async function go() {
  const tools = await import("./tools.js");
  tools.open();
}
go();
//// file: tools.js
export function open() {}

//// a module that is not in the archive
//> main -> (nothing)
import { open } from "./missing.js";
import other from "other";
open();
other();

//// a factory that exports an object
//> main -> db.js:connect, db.js:connect.query
const connect = require("./db");
const db = connect();
db.query();
//// file: db.js
function connect() {
  return {
    query() {},
  };
}
module.exports = connect;

//// functions added to exports one by one
//> main -> tools.js:open
const tools = require("./tools");
tools.api.open();
//// file: tools.js
function open() {}
exports.api = {};
exports.api.open = open;
