//// methods of an object
//> main -> tool.open; tool.open -> tool.check
const tool = {
  open() {
    this.check();
  },
  check: function () {},
};
tool.open();

//// functions as values
//> main -> work
function work() {}
const table = { run: work };
table.run();

//// objects in objects
//> main -> api.users.list, api.users.find
const api = {
  users: {
    list() {},
    find: () => 1,
  },
};
api.users.list();
api.users.find();

//// functions added later
//> main -> tool.open, close
const tool = {};
function close() {}
tool.open = function () {};
tool.close = close;
tool.open();
tool.close();

//// an object that a function returns
//> main -> make, make.greet; make.greet -> make.name
function make() {
  return {
    name() {},
    greet() {
      this.name();
    },
  };
}
make().greet();

//// an object as an argument
//> main -> use; use -> plugin.install
const plugin = {
  install() {},
};
function use(one) {
  one.install();
}
use(plugin);

//// Object.assign
//> main -> a, b
function a() {}
function b() {}
const both = Object.assign({}, { a }, { b });
both.a();
both.b();

//// spread
//> main -> a, b
function a() {}
function b() {}
const first = { a };
const both = { ...first, b };
both.a();
both.b();

//// Object.create
//> main -> base.hello
const base = {
  hello() {},
};
const child = Object.create(base);
child.hello();

//// values of an object
//> main -> a, b
function a() {}
function b() {}
Object.values({ a, b }).forEach((fn) => fn());

//// a getter of an object
//> main -> config.size; config.size -> measure
function measure() {}
const config = {
  get size() {
    return measure();
  },
};
console.log(config.size);

//// Object.defineProperty
//> main -> work
function work() {}
const tool = {};
Object.defineProperty(tool, "work", { value: work });
tool.work();

//// frozen objects
//> main -> open
const api = Object.freeze({
  open() {},
});
api.open();

//// a method kept in a variable
//> main -> tool.open
const tool = {
  open() {},
};
const open = tool.open;
open();

//// this in an arrow function inside of a method
//> main -> list.each; list.each -> list.visit
const list = {
  items: [1],
  each() {
    this.items.forEach((item) => this.visit(item));
  },
  visit() {},
};
list.each();

//// an object in two variables
//> main -> late
function late() {}
const a = {};
const b = a;
b.late = late;
a.late();

//// two objects with one name for different functions
//> main -> first
function first() {}
function second() {}
const a = { run: first };
const b = { run: second };
a.run();
