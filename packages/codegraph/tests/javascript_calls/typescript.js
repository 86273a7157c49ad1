//// a function is given to a typed parameter
//// file: main.ts
//> main -> run; run -> task
function task(): void {}
function run(work: () => void): void {
  work();
}
run(task);

//// overriding by an interface
//// file: main.ts
//> main -> Disk.constructor, save; save -> Disk.put
interface Store {
  put(): void;
}
class Disk implements Store {
  constructor(private name: string) {}
  put(): void {}
}
function save(store: Store): void {
  store.put();
}
save(new Disk("a"));

//// casts and non-null assertions
//// file: main.ts
//> main -> work, other
function work(): void {}
function other(): void {}
const a = work as unknown as () => void;
a();
const table: { [key: string]: () => void } = { other };
table["other"]!();

//// parameter properties
//// file: main.ts
//> main -> Task.constructor, Task.run; Task.run -> job
function job(): void {}
class Task {
  constructor(private readonly fn: () => void) {}
  run(): void {
    this.fn();
  }
}
new Task(job).run();

//// a record of handlers
//// file: main.ts
//> main -> handle; handle -> onOpen, onClose
type Handler = () => void;
function onOpen(): void {}
function onClose(): void {}
const handlers: Record<string, Handler> = { open: onOpen, close: onClose };
function handle(kind: string): void {
  const handler = handlers[kind];
  handler?.();
}
handle("open");

//// an abstract class
//// file: main.ts
//> main -> Circle.constructor, Shape.print; Circle.constructor -> Shape.constructor; Shape.print -> Circle.area
abstract class Shape {
  constructor() {}
  abstract area(): number;
  print(): number {
    return this.area();
  }
}
class Circle extends Shape {
  constructor() {
    super();
  }
  area(): number {
    return 1;
  }
}
new Circle().print();

//// generic functions hand functions on
//// file: main.ts
//> main -> pipe; pipe -> double
function double(x: number): number {
  return x * 2;
}
function pipe<T>(value: T, fn: (value: T) => T): T {
  return fn(value);
}
pipe<number>(1, double);

//// an enum and a namespace
//// file: main.ts
//> main -> Tools.open
enum Color {
  Red,
}
namespace Tools {
  export function open(): Color {
    return Color.Red;
  }
}
Tools.open();
