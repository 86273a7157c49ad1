//// a pipeline of functions
//> main -> pipe, pipe.(anonymous); pipe.(anonymous) -> trim, upper
function trim(x) {
  return x;
}
function upper(x) {
  return x;
}
const pipe =
  (...steps) =>
  (value) =>
    steps.reduce((result, step) => step(result), value);
const clean = pipe(trim, upper);
clean("a");

//// a function with a cache of functions
//> main -> lookup, load; lookup -> load
const cache = {};
function load() {
  return load;
}
function lookup(name) {
  if (!(name in cache)) cache[name] = load();
  return cache[name];
}
lookup("a")();

//// a builder with a callback at its end
//> main -> Builder, Builder.with, Builder.done; Builder.done -> finish
function finish() {}
class Builder {
  with(name, value) {
    this[name] = value;
    return this;
  }
  done() {
    this.callback();
  }
}
new Builder().with("callback", finish).done();

//// a visitor
//> main -> Leaf, Pair.constructor, Printer, Pair.accept; Pair.accept -> Leaf.accept, Printer.visitPair; Leaf.accept -> Printer.visitLeaf
class Leaf {
  accept(visitor) {
    visitor.visitLeaf(this);
  }
}
class Pair {
  constructor(left, right) {
    this.left = left;
    this.right = right;
  }
  accept(visitor) {
    this.left.accept(visitor);
    this.right.accept(visitor);
    visitor.visitPair(this);
  }
}
class Printer {
  visitLeaf() {}
  visitPair() {}
}
new Pair(new Leaf(), new Leaf()).accept(new Printer());

//// a state machine
//> main -> Machine.constructor, Machine.step; Machine.step -> idle, busy
function idle(machine) {
  machine.state = busy;
}
function busy(machine) {
  machine.state = idle;
}
class Machine {
  constructor() {
    this.state = idle;
  }
  step() {
    const state = this.state;
    state(this);
  }
}
const machine = new Machine();
machine.step();
machine.step();

//// a linked list of handlers
//> main -> Link.constructor, Link.handle; Link.handle -> first, second, Link.handle
function first() {}
function second() {}
class Link {
  constructor(fn, next) {
    this.fn = fn;
    this.next = next;
  }
  handle(value) {
    this.fn(value);
    if (this.next) this.next.handle(value);
  }
}
new Link(first, new Link(second)).handle(1);

//// partial application
//> main -> partial, partial.(anonymous); partial.(anonymous) -> add
function add(a, b) {
  return a + b;
}
function partial(fn, ...first) {
  return (...rest) => fn(...first, ...rest);
}
const inc = partial(add, 1);
inc(2);

//// a trampoline
//> main -> trampoline, start; trampoline -> start.(anonymous); start.(anonymous) -> start
function start(n) {
  return n ? () => start(n - 1) : n;
}
function trampoline(value) {
  while (typeof value === "function") value = value();
  return value;
}
trampoline(start(3));

//// dependencies by name
//> main -> Container.constructor, Container.register, Container.get, Mailer.send; Container.get -> (anonymous); (anonymous) -> Mailer
class Mailer {
  send() {}
}
class Container {
  constructor() {
    this.factories = new Map();
  }
  register(name, factory) {
    this.factories.set(name, factory);
  }
  get(name) {
    return this.factories.get(name)(this);
  }
}
const container = new Container();
container.register("mailer", () => new Mailer());
container.get("mailer").send();

//// a singleton in a closure
//> main -> instance, create.read; instance -> create
function create() {
  return {
    read() {},
  };
}
const Settings = (() => {
  let one;
  return {
    instance() {
      if (!one) one = create();
      return one;
    },
  };
})();
Settings.instance().read();

//// a queue of promises
//> main -> later, run; run -> first, second
async function first() {}
async function second() {}
const jobs = [];
function later(job) {
  jobs.push(job);
}
async function run() {
  for (const job of jobs) await job();
}
later(first);
later(second);
run().then(() => 1);

//// a callback in a callback
//> main -> outer; outer -> (anonymous); (anonymous) -> inner; inner -> (anonymous).(anonymous); (anonymous).(anonymous) -> done
function done() {}
function inner(fn) {
  fn();
}
function outer(fn) {
  fn();
}
outer(() => {
  inner(() => {
    done();
  });
});

//// two instances with different functions in one field
//> main -> Box.constructor, Box.run; Box.run -> a, b
function a() {}
function b() {}
class Box {
  constructor(fn) {
    this.fn = fn;
  }
  run() {
    this.fn();
  }
}
new Box(a).run();
new Box(b).run();

//// two instances and only one of them is run
//> main -> Box.constructor; main -> Box.run; Box.run -> a
function a() {}
function b() {}
class Box {
  constructor(fn) {
    this.fn = fn;
  }
  run() {
    this.fn();
  }
}
new Box(b);
new Box(a).run();

//// an array of two and a call of each after a map
//> main -> toTask, toTask.run
function toTask(name) {
  return {
    run() {
      return name;
    },
  };
}
const tasks = ["a", "b"].map(toTask);
tasks.forEach((task) => task.run());

//// a table filled by a loop
//> main -> (anonymous); (anonymous) -> request
const table = {};
for (const verb of ["get", "post"]) {
  table[verb] = function () {
    return request(verb);
  };
}
function request() {}
table.get();

//// a getter that returns a function
//> main -> api.open, work
function work() {}
const api = {
  get open() {
    return work;
  },
};
api.open();

//// a class with a callable in its static table
//> main -> Parser.parse; Parser.parse -> Parser.number, Parser.word
class Parser {
  static table = { n: Parser.number, w: Parser.word };
  static number() {}
  static word() {}
  static parse(kind) {
    return Parser.table[kind]();
  }
}
Parser.parse("n");

//// an unused branch
//> main -> used
function used() {}
function unused() {}
let fn = used;
if (false) fn = unused;
fn();

//// a value that is overwritten before it is called
//> main -> second
function first() {}
function second() {}
let fn = first;
fn = second;
fn();

//// reduce that makes a table
//> main -> save
function save() {}
const table = [["save", save]].reduce((result, [name, fn]) => {
  result[name] = fn;
  return result;
}, {});
table.save();

//// Symbol.asyncIterator
//> main -> go; go -> Feed, Feed.[Symbol.asyncIterator], show
function show() {}
class Feed {
  async *[Symbol.asyncIterator]() {
    yield 1;
  }
}
async function go() {
  for await (const item of new Feed()) show(item);
}
go();

//// labels, comma and conditional chains
//> main -> a, b, c
function a() {}
function b() {}
function c() {}
let i = 0;
loop: for (;;) {
  i++, a();
  if (i > 1) break loop;
}
const fn = i > 5 ? a : i > 3 ? b : c;
i === 0 || fn();

//// new.target
//> main -> Point
function Point() {
  if (!new.target) return new Point();
  this.x = 1;
}
const p = new Point();
