//! Checks that a real cluster offers everything that the operator and its services will ask of it.

mod dns;
mod exec;
mod gateway;
mod images;
mod networks;
mod nodes;
mod operator;
mod restricted;
mod service;
mod storage;
mod switch;
