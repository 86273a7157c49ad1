//// a function that wraps another
//> main -> logged, logged.(anonymous); logged.(anonymous) -> work
function work() {}
function logged(fn) {
  return function (...args) {
    return fn.apply(this, args);
  };
}
const wrapped = logged(work);
wrapped();

//// a decorator of a class
//> Service -> register
function register(target) {
  return target;
}
@register
class Service {}

//// a decorator with arguments
//> Page -> route, route.(anonymous)
function route(path) {
  return function (target) {
    return target;
  };
}
@route("/a")
class Page {}

//// a decorator of a method
//> Job -> traced
function traced(target) {
  return target;
}
class Job {
  @traced
  run() {}
}

//// wrapped twice
//> main -> times, times.(anonymous), noted, noted.(anonymous); noted.(anonymous) -> times.(anonymous); times.(anonymous) -> work
function work() {}
function times(fn) {
  return () => fn();
}
function noted(fn) {
  return () => fn();
}
const one = times(work);
const two = noted(one);
two();
one();

//// a method replaced by a wrapped one
//> main -> wrap, wrap.(anonymous); wrap.(anonymous) -> tool.run
const tool = {
  run() {},
};
function wrap(fn) {
  return () => fn();
}
tool.start = wrap(tool.run);
tool.start();
