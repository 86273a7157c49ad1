//// a function by its constant index
//> main -> second
function first() {}
function second() {}
const list = [first, second];
list[1]();

//// every function of an array in a loop
//> main -> first, second
function first() {}
function second() {}
const list = [first, second];
for (const fn of list) {
  fn();
}

//// every function of an array by a counting loop
//> main -> first, second
function first() {}
function second() {}
const list = [first, second];
for (let i = 0; i < list.length; i++) {
  list[i]();
}

//// functions that are pushed
//> main -> add, drain; drain -> first, second
function first() {}
function second() {}
const queue = [];
function add(fn) {
  queue.push(fn);
}
function drain() {
  while (queue.length) {
    const next = queue.shift();
    next();
  }
}
add(first);
add(second);
drain();

//// nested arrays
//> main -> deep
function deep() {}
const rows = [[null, [deep]]];
rows[0][1][0]();

//// an element is replaced
//> main -> second
function second() {}
const list = [null];
list[0] = second;
list[0]();

//// an array of objects with functions
//> main -> start, stop
function start() {}
function stop() {}
const steps = [{ run: start }, { run: stop }];
steps.forEach((step) => step.run());

//// arrow functions in an array
//> main -> runAll; runAll -> (anonymous); (anonymous) -> work
function work() {}
const jobs = [() => work()];
function runAll() {
  for (const job of jobs) job();
}
runAll();

//// arrays put together
//> main -> a, b
function a() {}
function b() {}
const one = [a];
const two = [b];
const all = [...one, ...two];
all.forEach((fn) => fn());
const joined = one.concat(two);
joined[0]();

//// the last one, popped
//> main -> only
function only() {}
const stack = [only];
stack.pop()();

//// slices keep what they hold
//> main -> a, b
function a() {}
function b() {}
const list = [a, b].slice();
for (const fn of list) fn();
