"""Photographs as record shards: conversion, and a look at what a folder of records has."""
