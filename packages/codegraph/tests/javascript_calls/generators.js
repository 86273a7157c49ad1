//// a generator in a loop
//> main -> numbers; numbers -> step
function step() {}
function* numbers() {
  step();
  yield 1;
}
for (const n of numbers()) {
  console.log(n);
}

//// yield of functions
//> main -> tasks, first, second
function first() {}
function second() {}
function* tasks() {
  yield first;
  yield second;
}
for (const task of tasks()) {
  task();
}

//// yield of another generator
//> main -> outer, work; outer -> inner
function work() {}
function* inner() {
  yield work;
}
function* outer() {
  yield* inner();
}
for (const fn of outer()) fn();

//// next and value
//> main -> jobs, work
function work() {}
function* jobs() {
  yield work;
}
const it = jobs();
it.next().value();

//// what is sent into a generator
//> main -> loop; loop -> work
function work() {}
function* loop() {
  const fn = yield;
  fn();
}
const it = loop();
it.next();
it.next(work);

//// an iterable class
//> main -> Range.constructor, Range.[Symbol.iterator], Range.[Symbol.iterator].next; Range.[Symbol.iterator].next -> check
function check() {}
class Range {
  constructor(n) {
    this.n = n;
  }
  [Symbol.iterator]() {
    let i = 0;
    return {
      next: () => {
        check();
        return { value: i++, done: i > 3 };
      },
    };
  }
}
for (const i of new Range(3)) {
  console.log(i);
}

//// a generator as the iterator of a class
//> main -> Tree.constructor, Tree.[Symbol.iterator], leaf
function leaf() {}
class Tree {
  constructor() {
    this.kids = [];
  }
  *[Symbol.iterator]() {
    yield leaf;
  }
}
const tree = new Tree();
for (const node of tree) {
  node();
}

//// spread runs the iterator
//> main -> Bag, Bag.[Symbol.iterator]
class Bag {
  *[Symbol.iterator]() {
    yield 1;
  }
}
const all = [...new Bag()];

//// a generator method of an object
//> main -> source.items, visit
function visit() {}
const source = {
  *items() {
    yield 1;
  },
};
for (const item of source.items()) visit(item);

//// an asynchronous generator
//> main -> go; go -> pages, show
function show() {}
async function* pages() {
  yield 1;
}
async function go() {
  for await (const page of pages()) {
    show(page);
  }
}
go();
