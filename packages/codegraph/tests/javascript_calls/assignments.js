//// a function under another name
//> main -> work
function work() {}
const alias = work;
alias();

//// a chain of assignments
//> main -> work
function work() {}
let a, b, c;
a = b = c = work;
a();
b();
c();

//// one variable, two functions, one after the other
//> main -> first, second
function first() {}
function second() {}
let fn = first;
fn();
fn = second;
fn();

//// a function expression
//> main -> work; work -> help
function help() {}
const work = function () {
  help();
};
work();

//// a function expression with a name of its own
//> main -> fact; fact -> fact
const fact = function self(n) {
  return n < 2 ? 1 : n * self(n - 1);
};
fact(3);

//// two variables swapped by a pattern
//> main -> a, b
function a() {}
function b() {}
let x = a;
let y = b;
[x, y] = [y, x];
x();
y();

//// assigned inside of a condition
//> main -> fast, slow
function fast() {}
function slow() {}
let mode;
if (process.argv.length > 2) {
  mode = fast;
} else {
  mode = slow;
}
mode();

//// assigned by a logical operator
//> main -> fallback
function fallback() {}
let handler = null;
handler ??= fallback;
handler();

//// assigned by another function
//> main -> setup, before, after
function before() {}
function after() {}
let current = before;
function setup() {
  current = after;
}
setup();
current();

//// a variable of an outer function set by an inner one
//> main -> outer; outer -> outer.set, chosen
function chosen() {}
function outer() {
  let fn;
  function set() {
    fn = chosen;
  }
  set();
  fn();
}
outer();

//// an assignment as a value
//> main -> work
function work() {}
let fn;
(fn = work)();
