//// an emitter of one's own
//> main -> Emitter.constructor, Emitter.on, Emitter.emit; Emitter.emit -> saved
function saved() {}
class Emitter {
  constructor() {
    this.handlers = {};
  }
  on(name, handler) {
    if (!this.handlers[name]) this.handlers[name] = [];
    this.handlers[name].push(handler);
  }
  emit(name, value) {
    (this.handlers[name] || []).forEach((handler) => handler(value));
  }
}
const emitter = new Emitter();
emitter.on("save", saved);
emitter.emit("save");

//// a chain of middleware
//> main -> App.constructor, App.use, App.handle; App.handle -> first, second
function first(context, next) {}
function second() {}
class App {
  constructor() {
    this.stack = [];
  }
  use(fn) {
    this.stack.push(fn);
    return this;
  }
  handle(context) {
    for (let i = 0; i < this.stack.length; i++) {
      const layer = this.stack[i];
      layer(context);
    }
  }
}
const app = new App();
app.use(first).use(second);
app.handle({});

//// listeners by arrow functions
//> main -> Signal.constructor, Signal.listen, Signal.fire; Signal.fire -> (anonymous); (anonymous) -> note
function note() {}
class Signal {
  constructor() {
    this.listeners = new Set();
  }
  listen(fn) {
    this.listeners.add(fn);
  }
  fire() {
    for (const fn of this.listeners) fn();
  }
}
const signal = new Signal();
signal.listen(() => note());
signal.fire();

//// commands in a Map
//> main -> register, execute; execute -> open, close
function open() {}
function close() {}
const commands = new Map();
function register(name, fn) {
  commands.set(name, fn);
}
function execute(name) {
  const fn = commands.get(name);
  if (fn) fn();
}
register("open", open);
register("close", close);
execute("open");

//// observers that are objects
//> main -> Subject.constructor, View.constructor, Subject.attach, Subject.notify; Subject.notify -> View.update
class Subject {
  constructor() {
    this.observers = [];
  }
  attach(observer) {
    this.observers.push(observer);
  }
  notify() {
    this.observers.forEach((observer) => observer.update(this));
  }
}
class View {
  constructor() {
    this.a = 1;
  }
  update() {}
}
const subject = new Subject();
subject.attach(new View());
subject.notify();

//// a store with a reducer
//> main -> createStore, createStore.dispatch; createStore.dispatch -> reduce
function reduce(state, action) {
  return state;
}
function createStore(reducer) {
  let state;
  function dispatch(action) {
    state = reducer(state, action);
  }
  return { dispatch };
}
const store = createStore(reduce);
store.dispatch({ type: "a" });

//// the emitter of Node
//> main -> opened
const { EventEmitter } = require("events");
function opened() {}
const bus = new EventEmitter();
bus.on("open", opened);
bus.emit("open");
