//// a function that returns a function
//> main -> pick, work
function work() {}
function pick() {
  return work;
}
pick()();

//// one of two
//> main -> pick, a, b
function a() {}
function b() {}
function pick(flag) {
  if (flag) return a;
  return b;
}
const fn = pick(true);
fn();

//// what is returned is returned again
//> main -> outer, work; outer -> inner
function work() {}
function inner() {
  return work;
}
function outer() {
  return inner();
}
outer()();

//// the argument is returned
//> main -> same, work
function work() {}
function same(x) {
  return x;
}
same(work)();

//// each caller gets its own argument back
//> first -> same, a; second -> same, b; main -> first, second
function a() {}
function b() {}
function same(x) {
  return x;
}
function first() {
  same(a)();
}
function second() {
  same(b)();
}
first();
second();

//// an instance is returned
//> main -> make, Item.show; make -> Item.constructor
class Item {
  constructor() {
    this.a = 1;
  }
  show() {}
}
function make() {
  return new Item();
}
make().show();

//// a conditional value
//> main -> pick, a, b
function a() {}
function b() {}
const pick = (flag) => (flag ? a : b);
pick(true)();

//// a class is returned
//> main -> define, define.Local.constructor, define.Local.run
function define() {
  class Local {
    constructor() {
      this.a = 1;
    }
    run() {}
  }
  return Local;
}
const Made = define();
new Made().run();

//// a function in an array is returned
//> main -> both, a, b
function a() {}
function b() {}
function both() {
  return [a, b];
}
const [x, y] = both();
x();
y();
