// Preact with htm, and small helpers that every page uses.

import { Component, h, render } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import htm from 'htm'

export { Component, render, useEffect, useMemo, useRef, useState }
export const html = htm.bind(h)

// The state of a promise: { value, error, loading }. The last value stays while a new one is computed.
export function useData(load, keys) {
  const [state, setState] = useState({ loading: true })
  useEffect(() => {
    let isCurrent = true
    setState(before => ({ value: before.value, loading: true }))
    Promise.resolve().then(load).then(
      value => isCurrent && setState({ value, loading: false }),
      error => isCurrent && setState({ error, loading: false }),
    )
    return () => { isCurrent = false }
  }, keys)
  return state
}

// The content of a promise, or a sentence on what it waits for or why it failed.
export function Loaded({ state, what, children }) {
  if (state.error) return html`<p class="problem" role="alert">${state.error.message}</p>`
  if (state.value === undefined) return html`<p class="waiting" role="status">Loading ${what ?? ''}…</p>`
  return children(state.value)
}

// The address of a page. Parts are encoded, parameters follow where they have a value.
export function link(parts, parameters = {}) {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== '') query.set(name, value)
  }
  const said = query.toString()
  return `#/${parts.map(encodeURIComponent).join('/')}${said && '?' + said}`
}

const MINUS = '−'

export function percent(value, digits = 1) {
  return number(100 * value, digits)
}

export function number(value, digits = 2) {
  if (value === null || value === undefined || Number.isNaN(value)) return '–'
  return value.toFixed(digits).replace('-', MINUS)
}

export const count = value => value.toLocaleString('en-GB')

// A name of the results in words.
export const words = name => name.replaceAll('_', ' ')
