//// from an object
//> main -> work
function work() {}
const tools = { work };
const { work: run } = tools;
run();

//// from an array
//> main -> first, second
function first() {}
function second() {}
const [one, two] = [first, second];
one();
two();

//// parameters that are patterns
//> main -> start; start -> begin
function begin() {}
function start({ onStart }) {
  onStart();
}
start({ onStart: begin });

//// a default value in a pattern
//> main -> start; start -> nothing, begin
function nothing() {}
function begin() {}
function start({ onStart = nothing } = {}) {
  onStart();
}
start();
start({ onStart: begin });

//// nested patterns
//> main -> deep
function deep() {}
const {
  a: {
    b: [, fn],
  },
} = { a: { b: [null, deep] } };
fn();

//// the rest of an object
//> main -> close
function open() {}
function close() {}
const { open: unused, ...rest } = { open, close };
rest.close();

//// the rest of an array
//> main -> b
function a() {}
function b() {}
const [first, ...others] = [a, b];
others.forEach((fn) => fn());

//// a pattern in a loop
//> main -> run
function run() {}
const pairs = [["run", run]];
for (const [name, fn] of pairs) {
  fn(name);
}

//// entries of an object
//> main -> a, b
function a() {}
function b() {}
for (const [name, fn] of Object.entries({ a, b })) {
  fn(name);
}

//// what a function returns taken apart
//> main -> make, make.open
function make() {
  const open = () => 1;
  return { open, name: "x" };
}
const { open } = make();
open();

//// an assignment to a pattern
//> main -> work
function work() {}
let fn;
({ fn } = { fn: work });
fn();

//// parameters that are array patterns
//> main -> call; call -> work
function work() {}
function call([name, fn]) {
  fn(name);
}
call(["a", work]);

//// methods taken from an instance
//> main -> Counter, Counter.up
class Counter {
  up() {}
}
const { up } = new Counter();
up();
