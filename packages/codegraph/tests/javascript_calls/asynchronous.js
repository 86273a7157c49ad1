//// await of a function
//> main -> go; go -> load
async function load() {}
async function go() {
  await load();
}
go();

//// then, catch and finally
//> main -> load, show, fail, done
function load() {
  return Promise.resolve(1);
}
function show() {}
function fail() {}
function done() {}
load().then(show).catch(fail).finally(done);

//// the executor of a promise
//> main -> sleep; sleep -> begin
function begin() {}
function sleep() {
  return new Promise((resolve) => {
    begin();
    resolve();
  });
}
sleep();

//// an executor that is a named function
//> main -> execute
function execute(resolve) {
  resolve();
}
const ready = new Promise(execute);

//// what a promise is resolved with
//> main -> load, use; use -> work
function work() {}
function load() {
  return Promise.resolve(work);
}
function use(fn) {
  fn();
}
load().then(use);

//// await gives what an async function returns
//> main -> go; go -> make, work
function work() {}
async function make() {
  return work;
}
async function go() {
  const fn = await make();
  fn();
}
go();

//// a callback by an arrow in then
//> main -> load, show
function show() {}
async function load() {}
load().then((data) => show(data));

//// all at once
//> main -> go; go -> one, two
async function one() {}
async function two() {}
async function go() {
  await Promise.all([one(), two()]);
}
go();

//// what several promises give
//> main -> go; go -> one, work
function work() {}
async function one() {
  return work;
}
async function go() {
  const [fn] = await Promise.all([one()]);
  fn();
}
go();

//// resolve is given a function
//> main -> later, use; use -> work
function work() {}
function later() {
  return new Promise((resolve) => resolve(work));
}
function use(fn) {
  fn();
}
later().then(use);

//// an async arrow function called at once
//> main -> load
async function load() {}
(async () => {
  await load();
})();

//// a callback in the manner of Node
//> main -> read, handle; read -> handle
function handle(error, data) {}
function read(name, done) {
  setTimeout(() => done(null, name), 1);
}
read("a", handle);
handle();
