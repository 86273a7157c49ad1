//// an overriding method is run by what is inherited
//> main -> Leaf, Base.run; Base.run -> Leaf.step
class Base {
  run() {
    this.step();
  }
  step() {}
}
class Leaf extends Base {
  step() {}
}
new Leaf().run();

//// base and heir are both used
//> main -> Base, Leaf, Base.run; Base.run -> Base.step, Leaf.step
class Base {
  run() {
    this.step();
  }
  step() {}
}
class Leaf extends Base {
  step() {}
}
new Base().run();
new Leaf().run();

//// three levels
//> main -> C, A.a, B.b, C.c; C.c -> B.b; B.b -> A.a
class A {
  a() {}
}
class B extends A {
  b() {
    this.a();
  }
}
class C extends B {
  c() {
    super.b();
  }
}
const x = new C();
x.a();
x.b();
x.c();

//// a mixin is a function that returns a class
//> main -> Bird.constructor, Flying.fly; Bird -> Flying; Bird.constructor -> Animal.constructor
class Animal {
  constructor() {
    this.legs = 2;
  }
}
const Flying = (Base) =>
  class extends Base {
    fly() {}
  };
class Bird extends Flying(Animal) {
  constructor() {
    super();
  }
}
new Bird().fly();

//// Object.assign mixes methods in
//> main -> Door.constructor, canOpen.open
const canOpen = {
  open() {},
};
class Door {
  constructor() {
    this.a = 1;
  }
}
Object.assign(Door.prototype, canOpen);
new Door().open();

//// a template method in the constructor
//> main -> Base.constructor; Base.constructor -> Leaf.setup
class Base {
  constructor() {
    this.setup();
  }
  setup() {}
}
class Leaf extends Base {
  setup() {}
}
new Leaf();

//// a class kept in another variable is extended
//> main -> Root.constructor, Root.go
class Root {
  constructor() {
    this.a = 1;
  }
  go() {}
}
const Alias = Root;
class Leaf extends Alias {}
new Leaf().go();

//// static methods are inherited
//> main -> Base.make
class Base {
  static make() {}
}
class Leaf extends Base {}
Leaf.make();

//// instances of two classes by one name
//> main -> Dog, Cat, speak; speak -> Dog.sound, Cat.sound
class Dog {
  sound() {}
}
class Cat {
  sound() {}
}
function speak(animal) {
  animal.sound();
}
speak(new Dog());
speak(new Cat());

//// two classes have a method of one name and one is meant
//> main -> Dog, Dog.sound
class Dog {
  sound() {}
}
class Cat {
  sound() {}
}
const pet = new Dog();
pet.sound();

//// methods of an abstract base
//> main -> Job, Queue.constructor, Queue.drain; Queue.drain -> Job.run; Job.run -> Job.perform
class Task {
  run() {}
}
class Job extends Task {
  run() {
    this.perform();
  }
  perform() {}
}
class Queue {
  constructor(tasks) {
    this.tasks = tasks;
  }
  drain() {
    this.tasks.forEach((task) => task.run());
  }
}
new Queue([new Job()]).drain();
