//// a closure is returned and called
//> main -> makeAdder, makeAdder.(anonymous); makeAdder.(anonymous) -> add
function add(a, b) {
  return a + b;
}
function makeAdder(a) {
  return function (b) {
    return add(a, b);
  };
}
const plusOne = makeAdder(1);
plusOne(2);

//// a closure with a name
//> main -> outer, outer.inner; outer.inner -> help
function help() {}
function outer() {
  function inner() {
    help();
  }
  return inner;
}
outer()();

//// an arrow function that returns arrow functions
//> main -> curry, curry.(anonymous), curry.(anonymous).(anonymous); curry.(anonymous).(anonymous) -> total
function total() {}
const curry = (a) => (b) => (c) => total(a, b, c);
curry(1)(2)(3);

//// a closure calls what the function around was given
//> main -> wrap, wrap.(anonymous); wrap.(anonymous) -> work
function work() {}
function wrap(fn) {
  return function () {
    return fn();
  };
}
const wrapped = wrap(work);
wrapped();

//// two closures share a counter
//> main -> counter, counter.up, counter.down; counter.up -> note; counter.down -> note
function note() {}
function counter() {
  let n = 0;
  return {
    up() {
      n += 1;
      note(n);
    },
    down() {
      n -= 1;
      note(n);
    },
  };
}
const c = counter();
c.up();
c.down();

//// a module made by a function called at once
//> main -> open; open -> check
const api = (function () {
  function check() {}
  return {
    open: function () {
      check();
    },
  };
})();
api.open();

//// functions put together
//> main -> compose, compose.(anonymous); compose.(anonymous) -> f, g
function f() {}
function g() {}
function compose(one, two) {
  return (x) => one(two(x));
}
const both = compose(f, g);
both(1);

//// a function that remembers
//> main -> once, once.(anonymous); once.(anonymous) -> init
function init() {}
function once(fn) {
  let done = false;
  return (...args) => {
    if (!done) {
      done = true;
      fn(...args);
    }
  };
}
const start = once(init);
start();

//// a closure in a loop
//> main -> makeAll, makeAll.(anonymous); makeAll.(anonymous) -> show
function show() {}
function makeAll() {
  const all = [];
  for (let i = 0; i < 2; i++) {
    all.push(() => show(i));
  }
  return all;
}
makeAll()[0]();

//// two closures returned in an array
//> main -> useState, useState.set, useState.get
function useState(initial) {
  let state = initial;
  const get = () => state;
  const set = (next) => {
    state = next;
  };
  return [get, set];
}
const [get, set] = useState(0);
set(get() + 1);
