//// map, filter and reduce run their callbacks
//> main -> double, odd, sum
function double(x) {
  return x * 2;
}
function odd(x) {
  return x % 2;
}
function sum(a, b) {
  return a + b;
}
[1, 2].map(double).filter(odd).reduce(sum, 0);

//// forEach, some, every, find and sort
//> main -> show, test, check, pick, order
function show() {}
function test() {}
function check() {}
function pick() {}
function order() {}
const list = [1, 2];
list.forEach(show);
list.some(test);
list.every(check);
list.find(pick);
list.sort(order);

//// a callback of map calls a function by an arrow
//> main -> double
function double(x) {
  return x * 2;
}
const twice = [1].map((x) => double(x));

//// what map returns holds what its callback returns
//> main -> wrap, inner
function inner() {}
function wrap() {
  return inner;
}
const list = [1, 2].map(wrap);
list[0]();

//// Array.from with a function
//> main -> square
function square(x) {
  return x * x;
}
Array.from([1, 2], square);

//// timers
//> main -> tick, tock, later
function tick() {}
function tock() {}
function later() {}
setTimeout(tick, 10);
setInterval(tock, 10);
queueMicrotask(later);

//// a replacement by a function
//> main -> upper
function upper(text) {
  return text.toUpperCase();
}
"abc".replace(/a/, upper);

//// values of a Map
//> main -> work
function work() {}
const registry = new Map();
registry.set("work", work);
registry.get("work")();

//// every value of a Map
//> main -> a, b
function a() {}
function b() {}
const registry = new Map([["a", a]]);
registry.set("b", b);
for (const fn of registry.values()) fn();

//// members of a Set
//> main -> a
function a() {}
const hooks = new Set();
hooks.add(a);
hooks.forEach((hook) => hook());

//// a comparison by an arrow function
//> main -> rank
function rank(x) {
  return x;
}
[3, 1].sort((a, b) => rank(a) - rank(b));

//// an own class has a method of the name map
//> main -> Box.constructor, Box.map; Box.map -> double
function double(x) {
  return x * 2;
}
class Box {
  constructor(value) {
    this.value = value;
  }
  map(fn) {
    return fn(this.value);
  }
}
new Box(1).map(double);

//// an object converted to text
//> main -> label.toString
const label = {
  toString() {
    return "label";
  },
};
const text = `${label}`;

//// JSON.stringify asks for toJSON
//> main -> point.toJSON
const point = {
  toJSON() {
    return [];
  },
};
JSON.stringify(point);
