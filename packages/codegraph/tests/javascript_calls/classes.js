//// a constructor and a method
//> main -> Dog.constructor, Dog.bark; Dog.bark -> Dog.sound
class Dog {
  constructor(name) {
    this.name = name;
  }
  bark() {
    return this.sound();
  }
  sound() {}
}
const dog = new Dog("a");
dog.bark();

//// an inherited constructor and an inherited method
//> main -> Animal.constructor, Animal.eat
class Animal {
  constructor() {
    this.full = false;
  }
  eat() {}
}
class Cat extends Animal {}
const cat = new Cat();
cat.eat();

//// super calls
//> main -> Child.constructor, Child.show; Child.constructor -> Base.constructor; Child.show -> Base.show
class Base {
  constructor() {
    this.x = 1;
  }
  show() {}
}
class Child extends Base {
  constructor() {
    super();
  }
  show() {
    super.show();
  }
}
new Child().show();

//// static methods and this in them
//> main -> Tool.make, Tool.run; Tool.make -> Tool.constructor; Tool.run -> Tool.check
class Tool {
  constructor() {
    this.ready = true;
  }
  static make() {
    return new this();
  }
  static run() {
    return this.check();
  }
  static check() {}
}
Tool.make();
Tool.run();

//// getters and setters
//> main -> Circle.constructor, Circle.area, Circle.radius; Circle.area -> pi; Circle.radius -> check
function pi() {
  return 3;
}
function check() {}
class Circle {
  constructor() {
    this.r = 1;
  }
  get area() {
    return pi() * this.r;
  }
  set radius(value) {
    check(value);
    this.r = value;
  }
}
const circle = new Circle();
circle.radius = 2;
console.log(circle.area);

//// fields that are arrow functions
//> main -> Panel, Panel.open; Panel.open -> Panel.draw
class Panel {
  open = () => {
    this.draw();
  };
  draw() {}
}
const panel = new Panel();
panel.open();

//// private methods
//> main -> Safe, Safe.open; Safe.open -> Safe.#check
class Safe {
  open() {
    return this.#check();
  }
  #check() {
    return true;
  }
}
new Safe().open();

//// a method given as a callback
//> main -> Worker.constructor, each; each -> Worker.work
class Worker {
  constructor() {
    this.done = 0;
  }
  work() {}
}
function each(fn) {
  fn();
}
const worker = new Worker();
each(worker.work);

//// a function kept in a field
//> main -> Task.constructor, Task.run; Task.run -> job
function job() {}
class Task {
  constructor(fn) {
    this.fn = fn;
  }
  run() {
    this.fn();
  }
}
const task = new Task(job);
task.run();

//// an object kept in a field
//> main -> Car.constructor, Car.drive; Car.constructor -> Engine; Car.drive -> Engine.start
class Engine {
  start() {}
}
class Car {
  constructor() {
    this.engine = new Engine();
  }
  drive() {
    this.engine.start();
  }
}
new Car().drive();

//// an object given to a constructor
//> main -> Store, Service.constructor, Service.save; Service.save -> Store.put
class Store {
  put() {}
}
class Service {
  constructor(store) {
    this.store = store;
  }
  save() {
    this.store.put();
  }
}
const service = new Service(new Store());
service.save();

//// methods that return this
//> main -> Query, Query.where, Query.limit, Query.all
class Query {
  where() {
    return this;
  }
  limit() {
    return this;
  }
  all() {}
}
new Query().where().limit().all();

//// a class expression
//> main -> Shape.constructor, Shape.area
const Shape = class {
  constructor() {
    this.x = 0;
  }
  area() {}
};
new Shape().area();

//// a class in a variable
//> main -> build; build -> Widget.constructor, Widget.show
class Widget {
  constructor() {
    this.a = 1;
  }
  show() {}
}
function build(Kind) {
  const made = new Kind();
  made.show();
}
build(Widget);

//// instances in an array
//> main -> Rect.constructor, Round.constructor, Rect.draw, Round.draw
class Rect {
  constructor() {
    this.a = 1;
  }
  draw() {}
}
class Round {
  constructor() {
    this.r = 1;
  }
  draw() {}
}
const shapes = [new Rect(), new Round()];
for (const shape of shapes) {
  shape.draw();
}

//// a static block
//> Config -> prepare
function prepare() {}
class Config {
  static {
    prepare();
  }
}

//// a static field with an instance
//> Single.get -> Single.constructor; main -> Single.get, Single.use
class Single {
  constructor() {
    this.a = 1;
  }
  static get() {
    if (!Single.one) Single.one = new Single();
    return Single.one;
  }
  use() {}
}
Single.get().use();
