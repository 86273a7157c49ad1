//// functions call functions
//> main -> a; a -> b; b -> c
function c() {}
function b() {
  c();
}
function a() {
  b();
}
a();

//// recursion, and each other
//> main -> even; even -> odd; odd -> even
function even(n) {
  return n === 0 || odd(n - 1);
}
function odd(n) {
  return n !== 0 && even(n - 1);
}
even(4);

//// called before it is written
//> main -> later
later();
function later() {}

//// functions called at once
//> main -> help
function help() {}
(function () {
  help();
})();
(() => {
  help();
})();
!(function named() {
  help();
})();

//// functions inside functions
//> main -> outer; outer -> outer.inner; outer.inner -> outer.inner.deep
function outer() {
  function inner() {
    function deep() {}
    deep();
  }
  inner();
}
outer();

//// calls as arguments and as operands
//> main -> a, b, c
function a() {
  return 1;
}
function b() {
  return 2;
}
function c() {}
c(a() + b(), [a()], { x: b() });

//// calls in strings
//> main -> name, tag
function name() {}
function tag() {}
const text = `hello ${name()}`;
const made = tag`hello ${text}`;

//// the same name inside hides the one outside
//> main -> work, use; use -> use.work
function work() {}
function use() {
  function work() {}
  work();
}
use();
work();

//// a call with new of a plain function
//> main -> Point
function Point(x) {
  this.x = x;
}
const p = new Point(1);

//// optional calls
//> main -> work, box.run
function work() {}
const box = {
  run() {},
};
work?.();
box?.run?.();

//// void, sequence and delete
//> main -> a, b
function a() {}
function b() {}
void a();
(0, b)();
