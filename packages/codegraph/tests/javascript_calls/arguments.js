//// a named function is given to a function that calls it
//> main -> run; run -> task
function task() {}
function run(work) {
  work();
}
run(task);

//// two functions are given to one function
//> main -> run; run -> first, second
function first() {}
function second() {}
function run(work) {
  return work();
}
run(first);
run(second);

//// a parameter is handed on to another function
//> main -> outer; outer -> inner; inner -> task
function task() {}
function inner(fn) {
  fn();
}
function outer(fn) {
  inner(fn);
}
outer(task);

//// a function given inside an object of options
//> main -> load; load -> finished, failed
function finished() {}
function failed() {}
function load(options) {
  if (options.ok) options.success();
  else options.failure();
}
load({ ok: true, success: finished, failure: failed });

//// a default value that is a function
//> main -> log, log; log -> plain, shout
function plain(text) {
  return text;
}
function shout(text) {
  return text.toUpperCase();
}
function log(text, format = plain) {
  return format(text);
}
log("a");
log("b", shout);

//// an anonymous function is given and calls a function
//> main -> twice; twice -> (anonymous); (anonymous) -> work
function work() {}
function twice(fn) {
  fn();
  fn();
}
twice(() => work());

//// rest parameters
//> main -> all; all -> a, b
function a() {}
function b() {}
function all(...steps) {
  for (const step of steps) step();
}
all(a, b);

//// an array spread into arguments
//> main -> pair; pair -> a, b
function a() {}
function b() {}
function pair(one, two) {
  one();
  two();
}
const both = [a, b];
pair(...both);

//// the object arguments
//> main -> each; each -> a
function a() {}
function each() {
  arguments[0]();
}
each(a);

//// a callback that is the last of several arguments
//> main -> fetchRow; fetchRow -> show; show -> render
function render() {}
function show(error, row) {
  render(row);
}
function fetchRow(id, done) {
  done(null, { id });
}
fetchRow(1, show);

//// a parameter that is never called
//> main -> keep
function task() {}
function keep(work) {
  return [work];
}
keep(task);

//// the name of a parameter hides a function
//> main -> run; run -> other
function work() {}
function other() {}
function run(work) {
  work();
}
run(other);
