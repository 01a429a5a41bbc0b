//! Checks that a real cluster has everything that the operator and its services need.

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
