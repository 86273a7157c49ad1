//// methods of a prototype
//> main -> Dog.constructor, Dog.bark; Dog.bark -> Dog.sound
function Dog(name) {
  this.name = name;
}
Dog.prototype.bark = function () {
  return this.sound();
};
Dog.prototype.sound = function () {};
new Dog("a").bark();

//// a prototype that is an object
//> main -> Cat.constructor, Cat.meow
function Cat() {
  this.a = 1;
}
Cat.prototype = {
  meow() {},
};
const cat = new Cat();
cat.meow();

//// a chain of prototypes
//> main -> Child.constructor, Base.hello; Child.constructor -> Base.constructor
function Base() {}
Base.prototype.hello = function () {};
function Child() {
  Base.call(this);
}
Child.prototype = Object.create(Base.prototype);
Child.prototype.constructor = Child;
new Child().hello();

//// Object.setPrototypeOf
//> main -> base.hello
const base = {
  hello() {},
};
const child = {};
Object.setPrototypeOf(child, base);
child.hello();

//// a method of the prototype taken by its name
//> main -> Dog.bark
function Dog() {}
Dog.prototype.bark = function () {};
const bark = Dog.prototype.bark;
bark();

//// functions in the constructor
//> main -> Counter.constructor, Counter.constructor.up
function Counter() {
  this.n = 0;
  this.up = function () {
    this.n += 1;
  };
}
Counter.prototype.down = function () {};
new Counter().up();

//// a named function as the method of a prototype
//> main -> Dog.constructor, bark
function Dog() {}
function bark() {}
Dog.prototype.bark = bark;
new Dog().bark();

//// self stands for this
//> main -> Timer.constructor, Timer.start; Timer.start -> Timer.tick
function Timer() {
  this.n = 0;
}
Timer.prototype.start = function () {
  const self = this;
  setTimeout(function () {
    self.tick();
  }, 10);
};
Timer.prototype.tick = function () {};
new Timer().start();

//// a method of a built-in prototype
//> main -> Array.last
Array.prototype.last = function () {
  return this[this.length - 1];
};
[1, 2].last();
