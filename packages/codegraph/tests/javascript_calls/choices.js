//// a ternary chooses the callee
//> main -> a, b
function a() {}
function b() {}
(Math.random() > 0.5 ? a : b)();

//// logical operators choose the callee
//> main -> a, b, c
function a() {}
function b() {}
function c() {}
const x = null || a;
x();
const y = undefined ?? b;
y();
(true && c)();

//// a switch chooses
//> main -> run; run -> start, stop, other
function start() {}
function stop() {}
function other() {}
function run(word) {
  switch (word) {
    case "start":
      return start();
    case "stop":
      stop();
      break;
    default:
      other();
  }
}
run("start");

//// a switch assigns
//> main -> pick; pick -> start, stop
function start() {}
function stop() {}
function pick(word) {
  let fn;
  switch (word) {
    case "start":
      fn = start;
      break;
    default:
      fn = stop;
  }
  fn();
}
pick("start");

//// an optional callback
//> main -> finish; finish -> done
function done() {}
function finish(callback) {
  callback?.();
  if (callback) callback();
  callback && callback();
}
finish(done);

//// a callback with a fallback inside
//> main -> finish; finish -> nothing, done
function nothing() {}
function done() {}
function finish(callback) {
  callback = callback || nothing;
  callback();
}
finish(done);

//// new of an expression
//> main -> A.constructor, B.constructor
class A {
  constructor() {
    this.a = 1;
  }
}
class B {
  constructor() {
    this.b = 1;
  }
}
const made = new (Math.random() > 0.5 ? A : B)();
