//// call and apply
//> main -> greet, sum
function greet() {}
function sum() {}
greet.call({ name: "a" });
sum.apply(null, [1, 2]);

//// bind and then call
//> main -> greet
function greet() {}
const bound = greet.bind({ name: "a" });
bound();

//// this is what it was bound to
//> main -> greet; greet -> person.name
const person = {
  name() {},
};
function greet() {
  this.name();
}
greet.call(person);

//// arguments pass through call
//> main -> run; run -> task
function task() {}
function run(work) {
  work();
}
run.call(null, task);

//// arguments pass through apply
//> main -> run; run -> task
function task() {}
function run(work) {
  work();
}
run.apply(null, [task]);

//// arguments that bind keeps
//> main -> run; run -> task
function task() {}
function run(work) {
  work();
}
const ready = run.bind(null, task);
ready();

//// a method borrowed from another object
//> main -> lender.show; lender.show -> borrower.text
const lender = {
  show() {
    return this.text();
  },
};
const borrower = {
  text() {},
};
lender.show.call(borrower);

//// the constructor of another function
//> main -> Child.constructor; Child.constructor -> Parent.constructor
function Parent() {
  this.a = 1;
}
Parent.prototype.get = function () {};
function Child() {
  Parent.call(this);
}
Child.prototype.set = function () {};
new Child();

//// a bound method as a callback
//> main -> Button.constructor, later, Button.clicked; later -> Button.clicked
class Button {
  constructor() {
    this.label = "";
  }
  clicked() {}
}
function later(fn) {
  fn();
}
const button = new Button();
later(button.clicked.bind(button));
button.clicked();

//// Reflect.apply
//> main -> sum
function sum() {}
Reflect.apply(sum, null, [1]);
